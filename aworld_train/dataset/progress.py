"""How far a build is.

The build counts, and whoever shows the progress looks at it now and then from a thread of its own: counting costs the
build next to nothing, and a slow source shows that it is slow.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class BuildProgress:
    """The ``phase`` of a build, such as ``reading tasks.jsonl``, and its ``total`` of rows where that is known."""

    def __init__(self) -> None:
        self.phase = ""
        self.rows = 0
        self.total: int | None = None
        self._began = time.monotonic()

    def begin(self, phase: str, total: int | None = None) -> None:
        self.phase, self.rows, self.total, self._began = phase, 0, total, time.monotonic()

    def text(self) -> str:
        parts, rows = [self.phase or "starting"], self.rows
        if rows:
            parts.append(f"{rows:,} rows")
            if self.total is not None:
                parts[-1] = f"{rows:,} of {self.total:,} rows ({rows / max(self.total, rows):.0%})"
            parts.append(f"{_rounded(rows / max(time.monotonic() - self._began, 0.001)):,} rows/s")
        return " · ".join(parts)


def known_rows(paths: Iterable[Path]) -> int | None:
    """How many rows the files have, where all say so unread, as parquet files do."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    for path in paths:
        if path.suffix != ".parquet":
            return None
        # Whoever reads the file reports what is wrong with it.
        with suppress(OSError, pa.ArrowException):
            rows += pq.read_metadata(path).num_rows
    return rows or None


def _rounded(rate: float) -> int:
    return int(round(rate, 2 - max(len(str(int(rate))), 2)))
