"""Reads files of JSON lines to which another process may be appending."""

import json
from pathlib import Path
from typing import Any

from aworld_train.errors import AworldTrainError


class JsonLinesTail:
    """Reads a growing file of JSON lines: each line once, and only when it is complete."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        try:
            return [json.loads(line) for line in whole.split(b"\n") if line.strip()]
        except ValueError as error:
            raise AworldTrainError(f"{self._path} cannot be read: {error}.") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a file of JSON lines; none if it does not exist."""
    return JsonLinesTail(path).read()


def split_lines(path: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The objects of a file, and its broken lines: a process that was killed, or a full disk, leaves a part of one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], []
    objects: list[dict[str, Any]] = []
    broken: list[bytes] = []
    for line in content.split(b"\n"):
        try:
            value = json.loads(line) if line.strip() else None
        except ValueError:
            broken.append(line)
            continue
        if isinstance(value, dict):
            objects.append(value)
        elif value is not None:
            broken.append(line)
    return objects, broken
