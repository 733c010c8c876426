"""The input files of a source, and the lines of a file, plain or compressed."""

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.errors import DatasetError

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is not a record, and is not held in memory."""

_BUFFER = 2**18
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"


def input_files(options: SourceOptions, suffixes: Sequence[str]) -> list[Path]:
    """The named files, and those with one of the suffixes in the named directories; compressed ones too.

    Raises:
        DatasetError: One is not there, or a directory has none.
    """
    paths: list[Path] = []
    for path in map(Path, options.files):
        path = path.expanduser()
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file() and _ends_with(file, suffixes))
            if not inside:
                raise DatasetError(
                    f"{path} (--file) is a directory without a file that ends with {' or '.join(suffixes)}. "
                    "Name the files."
                )
            paths += inside
        elif path.exists():
            paths.append(path)
        else:
            raise DatasetError(f"There is no file {path} (--file).")
    return [options.opened(path) for path in paths]


Line = tuple[int, bytes | None]
"""Number, from 1, and bytes of a line; None for one longer than `MAX_LINE_BYTES`."""


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file.

    Raises:
        DatasetError: The file cannot be read to its end, or is in UTF-16.
    """
    try:
        with closing(_open(path)) as file:
            start = file.peek(len(_BOM))
            if start.startswith(_UTF16):
                raise DatasetError(f"{path} is written in UTF-16. Save it as UTF-8.")
            if start.startswith(_BOM):
                file.read(len(_BOM))
            read = partial(file.readline, MAX_LINE_BYTES)
            for number, line in enumerate(iter(read, b""), 1):
                if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                    yield number, line
                    continue
                while line and not line.endswith(b"\n"):
                    line = read()
                yield number, None
    except OSError as error:
        raise unreadable(path, error) from error


def _open(path: Path) -> io.BufferedReader:
    compression = _COMPRESSIONS.get(path.suffix.casefold())
    if compression is None:
        return io.BufferedReader(path.open("rb", buffering=0), _BUFFER)
    import pyarrow as pa

    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(str(path), compression=compression)), _BUFFER)


def unreadable(path: Path, error: Exception) -> DatasetError:
    """The error for a file that cannot be read to its end."""
    why = (getattr(error, "strerror", None) or str(error)).splitlines()[0].rstrip(".")
    return DatasetError(f"{path} cannot be read to its end: {why}. Give a whole copy of the file.")


def _ends_with(path: Path, suffixes: Sequence[str]) -> bool:
    name = path.name.casefold()
    for suffix in _COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name.endswith(tuple(suffixes)) and not name.startswith(".")
