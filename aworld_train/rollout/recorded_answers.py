"""The answers of an endpoint, kept by their requests: work that was cut off asks nothing again that was answered.

Only answers are kept, as JSON lines that are written as they come; a request that failed is sent again.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from aworld_train.json_lines import decoded_lines
from aworld_train.rollout.chat_completion import ChatAnswer


class _Line(msgspec.Struct):
    request: str
    answer: ChatAnswer


class RecordedAnswers:
    def __init__(self, path: Path):
        lines, _ = decoded_lines(path, msgspec.json.Decoder(_Line).decode)
        self._answers = {line.request: line.answer for line in lines}
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("ab")
        if self._file.tell():
            self._file.write(b"\n")  # ends the line in which an earlier process was killed

    def find(self, request: Mapping[str, Any]) -> ChatAnswer | None:
        return self._answers.get(_digest(request))

    def keep(self, request: Mapping[str, Any], answer: ChatAnswer) -> None:
        line = _Line(_digest(request), answer)
        self._file.write(self._encoder.encode(line) + b"\n")
        self._file.flush()
        self._answers[line.request] = answer

    def close(self) -> None:
        self._file.close()


def _digest(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
