"""Writes an export: every format has a writer of this form, which is given one episode after the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msgspec import json

from aworld_train.store.reading import ReadBlob, StoredEpisode


@dataclass(frozen=True)
class ExportedEvaluation:
    """What formats say of a run that is an evaluation; ``tasks`` is how many it shall have."""

    dataset: str
    tasks: int
    attempts: int
    sampling: Mapping[str, Any]
    model_url: str | None
    is_complete: bool


@dataclass(frozen=True)
class ExportedRun:
    """What formats say of the run as a whole; ``model`` is empty where it is unknown, ``recipe`` not resolved."""

    name: str
    id: str
    model: str
    read_blob: ReadBlob = field(repr=False)
    version: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict, repr=False)
    evaluation: ExportedEvaluation | None = None


class ExportWriter(Protocol):
    """Writes one file; ``add`` is called for each episode, then ``finish`` once."""

    def add(self, episode: StoredEpisode) -> int:
        """Write an episode, whose content is kept; returns the number of entries that it makes."""

    def finish(self) -> None:
        """Write what belongs to the end of the file."""

    def abandon(self) -> None:
        """Let go of what is open; the file is thrown away."""


class JsonLinesWriter(ABC):
    def __init__(self, file: Path, run: ExportedRun):
        self.run = run
        self._stream = file.open("wb")

    @abstractmethod
    def lines(self, episode: StoredEpisode) -> Iterator[Mapping[str, Any]]:
        """The objects of an episode."""

    def add(self, episode: StoredEpisode) -> int:
        count = 0
        for line in self.lines(episode):
            self._stream.write(json_text(line))
            self._stream.write(b"\n")
            count += 1
        return count

    def finish(self) -> None:
        self._stream.close()

    def abandon(self) -> None:
        self._stream.close()


def json_text(value: Any) -> bytes:
    """A value as JSON (RFC 8259) in one line, by any notion of a line; NaN and infinities become null."""
    text = json.encode(value)
    if not text.isascii():
        for end, escaped in _ENDS_OF_LINES.items():
            text = text.replace(end, escaped)
    return text


_ENDS_OF_LINES = {end.encode(): b"\\u%04x" % ord(end) for end in "\x85\u2028\u2029"}
"""Those that JSON does not escape itself."""
