"""The input files of a source, and the lines of a file, plain or compressed."""

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

from aworld_train.dataset.sources.encodings import MARK_BYTES, UTF8, check_utf8, utf8_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.errors import DatasetError, DatasetNotFound

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is not a record, and is not held in memory."""

_BUFFER = 2**18
_ARROW_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_XZ = ".xz"
_COMPRESSED = (*_ARROW_COMPRESSIONS, _XZ)
_BOM = b"\xef\xbb\xbf"


def input_files(options: SourceOptions, suffixes: Sequence[str]) -> list[Path]:
    """The named files, and those with one of the suffixes in the named directories; compressed ones too."""
    paths: list[Path] = []
    for path in map(Path, options.files):
        path = path.expanduser()
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file() and _ends_with(file, suffixes))
            if not inside:
                raise DatasetNotFound(
                    f"{path} (--file) is a directory without a file that ends with {' or '.join(suffixes)}. "
                    "Name the files."
                )
            paths += inside
        elif path.exists():
            paths.append(path)
        else:
            raise DatasetNotFound(f"No such file: {path} (--file).")
    return [options.opened(path) for path in paths]


Line = tuple[int, bytes | None]
"""Number, from 1, and bytes of a line in UTF-8; None for one longer than `MAX_LINE_BYTES`."""


def read_lines(path: Path, encoding: str = UTF8) -> Iterator[Line]:
    try:
        with closing(_open(path)) as file:
            start = file.peek(MARK_BYTES)[:MARK_BYTES]
            if encoding != UTF8:
                pieces = utf8_lines(path, file, encoding, MAX_LINE_BYTES)
            else:
                check_utf8(path, start)
                if start.startswith(_BOM):
                    file.read(len(_BOM))
                pieces = iter(partial(file.readline, MAX_LINE_BYTES), b"")
            for number, line in enumerate(pieces, 1):
                if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                    yield number, line
                    continue
                while line and not line.endswith(b"\n"):
                    line = next(pieces, b"")
                yield number, None
    except OSError as error:
        raise unreadable(path, error) from error


def _open(path: Path) -> io.BufferedReader:
    suffix = path.suffix.casefold()
    if suffix == _XZ:
        from aworld_train.dataset.sources.xz import XzStream

        return io.BufferedReader(XzStream(path), _BUFFER)
    compression = _ARROW_COMPRESSIONS.get(suffix)
    if compression is None:
        return io.BufferedReader(path.open("rb", buffering=0), _BUFFER)
    import pyarrow as pa

    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(str(path), compression=compression)), _BUFFER)


def unreadable(path: Path, error: Exception) -> DatasetError:
    why = (getattr(error, "strerror", None) or str(error)).splitlines()[0].rstrip(".")
    return DatasetError(f"{path} cannot be read to its end: {why}. Give a whole copy of the file.")


def _ends_with(path: Path, suffixes: Sequence[str]) -> bool:
    name = path.name.casefold()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(tuple(suffixes)) and not name.startswith(".")
