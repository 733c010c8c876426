"""Values in notations that are not quite JSON: Python's, and that of Gemma's function calls.

Read by hand rather than with ``ast``, whose parser takes unbounded memory on text that was made to break it.
"""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aworld_train.rollout.formats.call_format import skip_space

_MAX_DEPTH = 50
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_WORD = re.compile(r"(?:true|false|null|none)\b", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?")
_PYTHON_STRING = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
_BARE_KEY = re.compile(r"[^\s:{}\[\],\"'<>]{1,200}")

Found = tuple[Any, int]


@dataclass(frozen=True)
class Notation:
    """How a string is read at a position, and whether keys of mappings may have no quotes."""

    string_at: Callable[[str, int], Found | None]
    bare_keys: bool = False


def value_at(text: str, position: int, notation: Notation, depth: int = 0) -> Found | None:
    """The value at a position, spaces skipped, and the position after it; None if there is none."""
    position = skip_space(text, position)
    string = notation.string_at(text, position)
    if string is not None:
        return string
    if text.startswith("[", position):
        return items_at(text, position + 1, "]", notation, depth)
    if text.startswith("{", position):
        return pairs_at(text, position + 1, "}", ":", notation, depth)
    if word := _WORD.match(text, position):
        return _WORDS[word.group().lower()], word.end()
    number = _NUMBER.match(text, position)
    if number is None:
        return None
    try:
        return json.loads(number.group()), number.end()
    except ValueError:  # leading zeros
        return None


def items_at(text: str, position: int, closes: str, notation: Notation, depth: int) -> Found | None:
    values: list[Any] = []
    while depth < _MAX_DEPTH:
        position = skip_space(text, position)
        if text.startswith(closes, position):
            return values, position + len(closes)
        found = value_at(text, position, notation, depth + 1)
        end = _after_item(text, found[1], closes) if found else None
        if found is None or end is None:
            return None
        values.append(found[0])
        position = end
    return None


def pairs_at(
    text: str, position: int, closes: str, between: str, notation: Notation, depth: int = 0
) -> Found | None:
    """The keys and values of a mapping, or of a call's arguments, up to their end."""
    pairs: dict[str, Any] = {}
    while depth < _MAX_DEPTH:
        position = skip_space(text, position)
        if text.startswith(closes, position):
            return pairs, position + len(closes)
        key = notation.string_at(text, position)
        if key is None and (notation.bare_keys or between == "="):
            bare = _BARE_KEY.match(text, position) if between == ":" else _IDENTIFIER.match(text, position)
            key = (bare.group(), bare.end()) if bare else None
        if key is None or not text.startswith(between, at := skip_space(text, key[1])):
            return None
        found = value_at(text, at + len(between), notation, depth + 1)
        end = _after_item(text, found[1], closes) if found else None
        if found is None or end is None:
            return None
        pairs[str(key[0])] = found[0]
        position = end
    return None


_IDENTIFIER = re.compile(r"[^\W\d]\w{0,199}")


def _after_item(text: str, position: int, closes: str) -> int | None:
    """The position of the next item or of the end; None if neither follows."""
    position = skip_space(text, position)
    if text.startswith(",", position):
        return position + 1
    return position if text.startswith(closes, position) else None


def python_string_at(text: str, position: int) -> Found | None:
    found = _PYTHON_STRING.match(text, position)
    if found is None:
        return None
    source = found.group().replace("\r", "\\r").replace("\n", "\\n")
    try:
        return ast.literal_eval(source), found.end()
    except (ValueError, SyntaxError, MemoryError):  # a NUL, half an escape
        return None


def delimited(mark: str) -> Callable[[str, int], Found | None]:

    def string_at(text: str, position: int) -> Found | None:
        if not text.startswith(mark, position):
            return None
        end = text.find(mark, position + len(mark))
        return (text[position + len(mark) : end], end + len(mark)) if end != -1 else None

    return string_at
