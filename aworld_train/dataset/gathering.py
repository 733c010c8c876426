"""Takes everything a source yields: tasks go to the spool, what is dropped is listed."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aworld_train.dataset.columns import Families, to_columns
from aworld_train.dataset.drops import DropList
from aworld_train.dataset.sources import Source, SourceOptions
from aworld_train.dataset.spool import Spool
from aworld_train.dataset.tasks import Dropped, Task

BATCH_TASKS = 4096
BATCH_CHARS = 8 << 20


@dataclass
class Gathered:
    """How much was looked at, and how much of it is tasks."""

    seen: int = 0
    kept: int = 0


def gather(
    source: Source,
    options: SourceOptions,
    number: int,
    families: Families,
    spool: Spool,
    drops: DropList,
) -> Gathered:
    """Take all tasks of one source, the build's ``number``-th.

    Raises:
        DatasetError: The source cannot be read.
    """
    count, held, size = Gathered(), list[Task](), 0
    for item in source(options):
        count.seen += 1
        if isinstance(item, Dropped):
            drops.drop(item)
            continue
        held.append(item)
        size += len(item.message)
        if len(held) == BATCH_TASKS or size > BATCH_CHARS:
            spool.add(to_columns(held, number, families, options.seed))
            count.kept += len(held)
            held, size = [], 0
    if held:
        spool.add(to_columns(held, number, families, options.seed))
        count.kept += len(held)
    return count


@contextmanager
def short_lived_rows() -> Iterator[None]:
    """While many rows come and go, what is there already is not looked at by the garbage collector again and again."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
