"""Files of JSON lines with tasks or predictions: one object per line, with an ``id`` and texts."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_train.errors import RewardError, UsageError

_TEXTS = ("answer", "scorer", "answer_schema", "query")


def read_lines(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """Of each line that is not blank: its location (file and number), its end (offset in bytes) and its content."""
    end = 0
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                end += len(text)
                if text.strip():
                    yield f"{path}, line {number}", end, text
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def read_object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"this is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise RewardError("this is not a JSON object.")
    return data


def read_id(data: Mapping[str, Any]) -> str | int:
    name = data.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise RewardError("it has no 'id', which must be a text or a whole number.")
    return name


def read_text_fields(data: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(data, key) for key in _TEXTS if data.get(key) is not None}


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if isinstance(value, str):
        return value
    if key == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise RewardError(f"its {key!r} must be a text, not {type(value).__name__}.")
