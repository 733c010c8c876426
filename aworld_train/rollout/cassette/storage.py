"""The file of a cassette: JSON lines that any number of processes append to.

The first line holds format and version; processes that begin at the same time may repeat it. Of several lines for the
same call, the last counts. A line that a killed process left half-written is skipped; the next writer begins a new
line.
"""

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aworld_train.errors import CassetteError

FORMAT = "aworld-train cassette"
VERSION = 1
_HEADER = {"format": FORMAT, "version": VERSION}
_HEADER_LINE = json.dumps(_HEADER).encode()
_CALL = {"server", "tool", "arguments", "nth"}

_log = logging.getLogger(__name__)


class LineLocation(NamedTuple):
    offset: int
    length: int


class CassetteFile:
    def __init__(self, path: Path, writable: bool):
        self.path = path
        self._read_to = 0
        self._line_number = 0
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if writable else os.O_RDONLY
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise CassetteError(
                f"No cassette at {path}: record one with env.cassette.mode=record, or name another with "
                "env.cassette.path."
            ) from error
        except OSError as error:
            raise CassetteError(f"The cassette {path} cannot be opened: {error.strerror}.") from error

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def append(self, record: Mapping[str, Any]) -> None:
        line = encode(record) + b"\n"
        try:
            size = os.fstat(self._descriptor).st_size
            if size == 0:
                line = _HEADER_LINE + b"\n" + line
            elif os.pread(self._descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            # One write on O_APPEND: lines of several processes do not mix.
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise CassetteError(f"The cassette {self.path} cannot be written: {error.strerror}.") from error

    def read_new(self) -> Iterator[tuple[LineLocation, dict[str, Any]]]:
        """The complete lines added since the last read, without headers."""
        if os.fstat(self._descriptor).st_size <= self._read_to:
            return
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # torn, or still being written
                location = LineLocation(self._read_to, len(line))
                self._read_to += len(line)
                self._line_number += 1
                if line.strip() and (record := self._record(line)) is not None:
                    yield location, record

    def bytes_at(self, location: LineLocation) -> bytes:
        return os.pread(self._descriptor, location.length, location.offset).rstrip(b"\n")

    def record_at(self, location: LineLocation) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.bytes_at(location))
        return record

    def _record(self, line: bytes) -> dict[str, Any] | None:
        """Parse a line; None for a header and for a torn line."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not line.startswith(b"{") or (self._line_number == 1 and line[:-1] not in _HEADER_LINE):
                raise self._unreadable("is not valid JSON") from error
            _log.warning("%s, line %d: half a line, passed over", self.path, self._line_number)
            return None
        if isinstance(record, dict) and record.get("format") == FORMAT:
            if record.get("version") != VERSION:
                raise self._unreadable(
                    f"says version {record.get('version')!r}, and this program reads version {VERSION}"
                )
            return None
        if self._line_number == 1:
            raise self._unreadable(f"does not say that this is one ({_HEADER_LINE.decode()})")
        if not isinstance(record, dict) or not _is_whole(record):
            raise self._unreadable("is neither a call nor a tool list")
        return record

    def _unreadable(self, reason: str) -> CassetteError:
        return CassetteError(
            f"The cassette {self.path} cannot be read: line {self._line_number} {reason}. Mend or remove the line, "
            "or record a new cassette."
        )


def _is_whole(record: dict[str, Any]) -> bool:
    if "tools" in record:
        return "server" in record and isinstance(record["tools"], list)
    outcomes = [record[kind] for kind in ("result", "error") if kind in record]
    return record.keys() >= _CALL and len(outcomes) == 1 and isinstance(outcomes[0], dict)


def encode(record: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can only escape
        return json.dumps(record).encode()
