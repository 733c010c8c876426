"""Reads files of JSON lines to which another process may be appending."""

import json
from pathlib import Path
from typing import Any


class JsonLinesTail:
    """Reads a growing file of JSON lines: each line once, and only when it is complete."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """The complete lines added since the last call; none if the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a file of JSON lines; none if it does not exist."""
    return JsonLinesTail(path).read()
