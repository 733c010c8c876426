"""Takes everything a source yields: tasks go to the spool, what is dropped is listed."""

import gc
from dataclasses import dataclass

from aworld_train.dataset.columns import Families, to_columns
from aworld_train.dataset.drops import DropList
from aworld_train.dataset.plan import PlannedSource
from aworld_train.dataset.sources import find_source
from aworld_train.dataset.spool import Spool
from aworld_train.dataset.tasks import Dropped, Task

BATCH_TASKS = 4096


@dataclass
class Gathered:
    """How much was looked at, and how much of it is tasks."""

    seen: int = 0
    kept: int = 0


def gather(
    source: PlannedSource, number: int, seed: int, families: Families, spool: Spool, drops: DropList
) -> Gathered:
    """Take all tasks of one source, the build's ``number``-th.

    Raises:
        DatasetError: The source cannot be read.
    """
    count, held = Gathered(), list[Task]()
    # What is there already stays: the many short-lived rows would have the collector go over it again and again.
    gc.freeze()
    for item in find_source(source.name)(source.options):
        count.seen += 1
        if isinstance(item, Dropped):
            drops.drop(item)
            continue
        held.append(item)
        if len(held) == BATCH_TASKS:
            spool.add(to_columns(held, number, families, seed))
            count.kept += len(held)
            held.clear()
    if held:
        spool.add(to_columns(held, number, families, seed))
        count.kept += len(held)
    gc.unfreeze()
    return count
