"""What was left out and why, listed as it is found: ``dropped.jsonl``."""

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from aworld_train.dataset.tasks import NOT_ASKED_FOR, Dropped
from aworld_train.errors import DatasetError

MAX_CHARS = 2000
"""How much of a dropped text is listed; its file and line say where the rest is."""


class DropList:
    """Writes ``dropped.jsonl`` line by line and counts by reason.

    Attributes:
        reasons: How many pieces of input were dropped, by reason.
    """

    def __init__(self, path: Path, strict: bool) -> None:
        """A list at ``path``; with ``strict`` the first thing that is dropped is an error."""
        self.reasons: Counter[str] = Counter()
        self._strict = strict
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def drop(self, item: Dropped) -> None:
        """List a piece of input that cannot be used.

        Raises:
            DatasetError: None may be dropped.
        """
        if self._strict and item.reason != NOT_ASKED_FOR:
            raise DatasetError(
                f"{item.file}, line {item.line}: {item.reason} ({_cut(item.text, 200)!r}). With --strict nothing "
                "may be dropped: mend the input, or build without --strict and look at dropped.jsonl."
            )
        self.reasons[item.reason] += 1
        self.note(item)

    def note(self, item: Dropped) -> None:
        """List something that could be used and was left out because that was asked for."""
        text = _cut(item.text, MAX_CHARS).encode("utf-8", errors="replace").decode()
        line = {"file": item.file, "line": item.line, "text": text, "reason": item.reason}
        self._file.write(self._encoder.encode(line) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"
