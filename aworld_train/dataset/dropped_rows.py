"""The list of records and tasks that were left out, each with its reason: ``dropped.jsonl``."""

from collections import Counter
from pathlib import Path
from typing import Self

import msgspec

from aworld_train.dataset.tasks import LEVEL_NOT_SELECTED, Dropped
from aworld_train.errors import DatasetError

MAX_CHARS = 2000
"""Longer texts are cut in the list, which also has the file and line of each."""


class DropList:
    def __init__(self, path: Path, strict: bool) -> None:
        self.reasons: Counter[str] = Counter()
        self._strict = strict
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def drop(self, item: Dropped) -> None:
        if self._strict and item.reason != LEVEL_NOT_SELECTED:
            raise DatasetError(
                f"{item.file}, line {item.line}: {item.reason} ({_cut(item.text, 200)!r}). With --strict nothing "
                "may be dropped: mend the input, or build without --strict and look at dropped.jsonl."
            )
        self.reasons[item.reason] += 1
        self.note(item)

    def note(self, item: Dropped) -> None:
        """List a usable task that the plan leaves out, without counting it as dropped."""
        self._file.write(self._encoder.encode(listed(item, MAX_CHARS)) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def listed(item: Dropped, max_chars: int) -> dict[str, str | int]:
    text = _cut(item.text, max_chars).encode("utf-8", errors="replace").decode()
    return {"file": item.file, "line": item.line, "text": text, "reason": item.reason}


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + "…"
