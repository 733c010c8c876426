"""Takes everything that a source yields: tasks go to the spool, dropped records to the list."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from aworld_train.dataset.columns import FamilyIndex, table_to_columns, to_columns
from aworld_train.dataset.dropped_rows import DropList
from aworld_train.dataset.external_sort import Spool
from aworld_train.dataset.progress import BuildProgress, known_rows
from aworld_train.dataset.sources import Source, SourceOptions
from aworld_train.dataset.tasks import Dropped, Task, TaskTable

BATCH_TASKS = 4096
BATCH_CHARS = 8 << 20


@dataclass
class GatheredCounts:
    seen: int = 0
    kept: int = 0


def gather(
    source: Source,
    options: SourceOptions,
    number: int,
    families: FamilyIndex,
    spool: Spool,
    drops: DropList,
    progress: BuildProgress,
) -> GatheredCounts:
    count, tasks, size = GatheredCounts(), list[Task](), 0
    file = ""

    def add(batch: pa.RecordBatch) -> None:
        count.seen += len(batch)
        count.kept += len(batch)
        spool.add(batch)

    for item in source(options):
        rows, item_file = (len(item), item.shared[0].file) if isinstance(item, TaskTable) else (1, item.file)
        if item_file != file:
            file, progress.phase, progress.total = item_file, f"reading {item_file}", known_rows(options.read)
        progress.rows += rows
        if isinstance(item, Dropped):
            count.seen += 1
            drops.drop(item)
            continue
        if isinstance(item, Task):
            tasks.append(item)
            size += len(item.message) + sum(map(len, item.images))
            if len(tasks) < BATCH_TASKS and size <= BATCH_CHARS:
                continue
        if tasks:
            add(to_columns(tasks, number, families, options.seed))
            tasks, size = [], 0
        if isinstance(item, TaskTable):
            add(table_to_columns(item, number, families, options.seed))
    if tasks:
        add(to_columns(tasks, number, families, options.seed))
    return count


@contextmanager
def short_lived_tasks() -> Iterator[None]:
    """Keep the garbage collector from scanning the existing objects again and again while many tasks are made."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
