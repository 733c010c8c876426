"""Files of JSON lines that grow while they are read."""

import json
from pathlib import Path
from typing import Any


class JsonLinesTail:
    """Reads a growing file of JSON lines, each line once and only when it is whole."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """The lines that came since the last call; none where the file does not exist."""
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
    """All whole lines of a file of JSON lines; none where it does not exist."""
    return JsonLinesTail(path).read()
