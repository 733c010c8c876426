"""Sorts more tasks than fit into memory, on disk.

Batches are held in memory; above a bound they are written as runs, grouped by the first byte of their digest. Since
digests are spread evenly, all tasks whose digests begin with the same bytes, read back from every run, are a part that
fits into memory and can be sorted there. A part that is still too big is grouped by the next byte, unless it consists
of repeats of one task. Of 1.2 million tasks this takes a third of DuckDB's time, and a third of polars' memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from aworld_train.dataset.arrays import Numbers, numbers
from aworld_train.dataset.tasks import DIGEST_BYTES

MAX_HELD_BYTES = 112 << 20
RUN_BYTES = 32 << 20

_GROUPS = 256
_MAX_BYTES = 8
"""Digests that agree in this many bytes are equal."""


@dataclass(frozen=True)
class SpoolPart:
    """Tasks whose digests lie in one range; ``order`` has their positions in order of digest, [tasks]."""

    batch: pa.RecordBatch
    order: Numbers


class Spool:
    """Takes batches with a column ``digest`` and returns them in its order; the parts can be read several times."""

    def __init__(
        self, folder: Path, max_held_bytes: int = MAX_HELD_BYTES, run_bytes: int = RUN_BYTES, byte: int = 0
    ) -> None:
        """Groups by a ``byte`` of the digest; the bytes before it are the same for all tasks."""
        self.folder = folder
        self.max_held_bytes, self.run_bytes, self.byte = max_held_bytes, run_bytes, byte
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._runs: list[_Run] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= (self.run_bytes if self._runs else self.max_held_bytes):
            self._spill()

    def parts(self) -> Iterator[SpoolPart]:
        if not self._runs:
            if len(self._held) > 1:
                self._held = [pa.concat_batches(self._held)]
            if self._held:
                yield _in_order(self._held[0])
            return
        self._spill()
        sizes = np.sum([run.bytes_by_group for run in self._runs], axis=0)
        start = 0
        while start < _GROUPS:
            end = start + 1
            while end < _GROUPS and sizes[start : end + 1].sum() <= self.run_bytes:
                end += 1
            size = int(sizes[start:end].sum())
            if size > 2 * self.run_bytes and self.byte + 1 < _MAX_BYTES:
                yield from self._regrouped(start)
            elif size:
                yield _in_order(
                    pa.concat_batches([b for run in self._runs for b in run.batches(start, end) if len(b)])
                )
            start = end

    def _regrouped(self, group: int) -> Iterator[SpoolPart]:
        folder = self.folder / f"{group:02x}"
        inner = Spool(folder, self.max_held_bytes, self.run_bytes, self.byte + 1)
        for run in self._runs:
            for batch in run.batches(group, group + 1):
                if len(batch):
                    inner.add(batch)
        yield from inner.parts()
        inner.remove()

    def remove(self) -> None:
        for run in self._runs:
            run.path.unlink()
        self._runs.clear()

    def _spill(self) -> None:
        held, self._held, self._held_bytes = self._held[::-1], [], 0
        while held:
            run, size = [], 0
            while held and size < self.run_bytes:
                size += held[-1].nbytes
                run.append(held.pop())
            self._write_run(pa.concat_batches(run))

    def _write_run(self, batch: pa.RecordBatch) -> None:
        groups = digests(batch)[:, self.byte]
        grouped = batch.take(numbers(np.argsort(groups, kind="stable")))
        ends = np.cumsum(np.bincount(groups, minlength=_GROUPS))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{len(self._runs)}.arrow"
        with pa.ipc.new_file(path, batch.schema) as writer:
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                writer.write_batch(grouped.slice(start, end - start))
        share = np.diff(ends, prepend=0) / len(batch)
        self._runs.append(_Run(path, share * batch.nbytes))


@dataclass(frozen=True)
class _Run:
    path: Path
    bytes_by_group: Numbers

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            for group in range(start, end):
                yield reader.get_batch(group)


def digests(batch: pa.RecordBatch) -> Numbers:
    """The digests of a batch as bytes, [tasks, 32], without a copy."""
    column = batch.column("digest")
    flat = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    start = column.offset * DIGEST_BYTES
    return flat[start : start + len(column) * DIGEST_BYTES].reshape(-1, DIGEST_BYTES)


def digest_numbers(batch: pa.RecordBatch) -> Numbers:
    """The digests of a batch as numbers that sort in the same order, [tasks, 4]."""
    return digests(batch).view(">u8").astype(np.uint64)


def _in_order(batch: pa.RecordBatch) -> SpoolPart:
    sort_keys = digest_numbers(batch)
    order = np.argsort(sort_keys[:, 0], kind="stable")
    firsts = sort_keys[order, 0]
    if (firsts[1:] == firsts[:-1]).any():
        # There are repeats, or, very rarely, different digests with the same first eight bytes.
        order = np.lexsort(sort_keys.T[::-1])
    return SpoolPart(batch, order)
