"""Kinds of values in a configuration, and how a message names them."""

from collections.abc import Collection, Mapping
from typing import Any

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "list": "a list",
    "map": "a map",
    "null": "null",
}


def kind_of(value: Any) -> str:
    """int, float, str, bool, list, map or null."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def in_words(kinds: Collection[str]) -> str:
    """Kinds as a message names them; a number may be a whole one, so that is not said twice."""
    implied = {"int"} if "float" in kinds else set()
    return " or ".join(words for kind, words in _WORDS.items() if kind in kinds and kind not in implied)


def describe(value: Any) -> str:
    kind = kind_of(value)
    return _WORDS[kind] if kind in ("null", "map", "list") else repr(value)
