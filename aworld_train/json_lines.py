"""Reads files of JSON, and of JSON lines to which another process may be appending.

``decode`` makes a value of a line; it raises ValueError for one that it cannot read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from aworld_train.errors import AworldTrainError

_Value = TypeVar("_Value")


class JsonLinesTail(Generic[_Value]):
    """Reads a growing file of JSON lines: each line once, and only when it is complete."""

    def __init__(self, path: Path, decode: Callable[[bytes], _Value]):
        self._path, self._decode = path, decode
        self._offset = 0

    def read(self) -> list[_Value]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        try:
            return [self._decode(line) for line in whole.split(b"\n") if line.strip()]
        except ValueError as error:
            raise AworldTrainError(f"{self._path} cannot be read: {error}.") from error


def split_lines(path: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The objects of a file, and its broken lines (see ``decoded_lines``)."""
    return decoded_lines(path, _object)


def decoded_lines(path: Path, decode: Callable[[bytes], _Value]) -> tuple[list[_Value], list[bytes]]:
    """The values of a file, and its broken lines: a process that was killed, or a full disk, leaves a part of one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], []
    values: list[_Value] = []
    broken: list[bytes] = []
    for line in content.split(b"\n"):
        try:
            if line.strip():
                values.append(decode(line))
        except ValueError:
            broken.append(line)
    return values, broken


def _object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where it is missing or only half written."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
