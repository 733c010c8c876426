"""Writes the rows of a split, row group by row group, after checking that training can use them."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.dataset.arrays import Numbers, numbers
from aworld_train.dataset.faults import RowCheck
from aworld_train.dataset.progress import BuildProgress
from aworld_train.dataset.rows import RowMaker

ROW_GROUP_ROWS = 8192
ROW_GROUP_BYTES = 32 << 20

# Columns whose values hardly repeat: dictionary encoding costs time and saves nothing.
_DISTINCT = {
    "prompt.list.element.content",
    *("extra_info.question", "extra_info.id", "extra_info.index", "extra_info.images.list.element"),
}


class SplitWriter:
    """Writes the rows of one split's tasks, in order, to a parquet file; the same rows give the same bytes."""

    def __init__(self, path: Path, split: str, maker: RowMaker, progress: BuildProgress) -> None:
        self._split, self._maker, self._progress = split, maker, progress
        self._check = RowCheck(str(path.name))
        self._writer = pq.ParquetWriter(
            path,
            maker.schema,
            compression="zstd",
            use_dictionary=[name for name in _leaves(maker.schema) if name not in _DISTINCT],
            write_statistics=["extra_info.index"],
        )
        self._held: list[pa.RecordBatch] = []
        self._indices: list[Numbers] = []
        self._held_rows = self._held_bytes = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None

    def add(self, tasks: pa.RecordBatch, positions: Numbers, index: Numbers) -> None:
        start = 0
        while start < len(positions):
            end = start + ROW_GROUP_ROWS - self._held_rows
            share = tasks.take(numbers(positions[start:end]))
            self._held.append(share)
            self._indices.append(index[start:end])
            self._held_rows += len(share)
            self._held_bytes += share.nbytes
            start = end
            if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= ROW_GROUP_BYTES:
                self._write()

    def _write(self) -> None:
        tasks = self._held[0] if len(self._held) == 1 else pa.concat_batches(self._held)
        rows = self._maker.rows(tasks, np.concatenate(self._indices), self._split)
        self._held, self._indices = [], []
        self._held_rows = self._held_bytes = 0
        self._check.add(rows)
        self._progress.rows += len(rows)
        # Arrow encodes without the interpreter's lock, so the next rows are made at the same time.
        self._wait()
        self._writing = self._thread.submit(self._writer.write_batch, rows)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if exception[0] is None:
                if self._held:
                    self._write()
                self._wait()
        finally:
            self._thread.shutdown()
            self._writer.close()


def _leaves(schema: pa.Schema) -> list[str]:
    def below(name: str, kind: pa.DataType) -> list[str]:
        if pa.types.is_struct(kind):
            return [leaf for field in kind for leaf in below(f"{name}.{field.name}", field.type)]
        if pa.types.is_list(kind):
            return below(f"{name}.list.element", kind.value_type)
        return [name]

    return [leaf for field in schema for leaf in below(field.name, field.type)]
