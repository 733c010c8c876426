"""Files of one JSON object a line, the form of several formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_train.store.export.writer import ExportedRun, json_text
from aworld_train.store.reading import StoredEpisode


class JsonLinesWriter(ABC):
    """Writes the objects that ``lines`` makes of each episode."""

    def __init__(self, file: Path, run: ExportedRun):
        self.run = run
        self._stream = file.open("w", encoding="utf-8")

    @abstractmethod
    def lines(self, episode: StoredEpisode) -> Iterator[Mapping[str, Any]]:
        """The objects of an episode."""

    def add(self, episode: StoredEpisode) -> int:
        count = 0
        for line in self.lines(episode):
            self._stream.write(json_text(line) + "\n")
            count += 1
        return count

    def finish(self) -> None:
        self._stream.close()

    def abandon(self) -> None:
        self._stream.close()
