"""The last JSON value of a text that has something at a path.

A value begins at a bracket. Most brackets of prose begin none, so the text is read once by the grammar of JSON: where
it is broken off, what was complete inside it still counts, and reading goes on from there (from inside the last string,
for a quotation mark may have been prose too). Fenced blocks need no rule of their own.

A path is keys with dots between them and indices in brackets, which may count from the end: ``answer.value``,
``results[0].x``, ``[-1]``; a key with other characters is written ``["my key"]``. A null at the path is no answer.
A list of plain values becomes them with ``, `` between, an object JSON text; numbers stay as they were written.
"""

import json
import re
from typing import Any

from aworld_train.errors import RewardError

MAX_DEPTH = 100
"""Brackets in brackets; what is deeper counts as text. No answer is, and what parses it must not recurse further."""

Path = tuple[str | int, ...]

_STEP = re.compile(
    r"""(?:^|(?<=.)\.)(?P<key>[^\s.\[\]"']+)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)+")\]"""
)
# A bracket and, looking ahead, what a value may go on with.
_OPENING = re.compile(r"""[{](?=[ \t\r\n]*+["}])|\[(?=[ \t\r\n]*+["{\[\]\-0-9tfn])""")
_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<open>[{\[]) | (?P<close>[}\]]) | (?P<comma>,) | (?P<colon>:)
        | (?P<string>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrtu])*+")
        | (?P<literal>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
    )""",
    re.VERBOSE,
)
# What may come, by what the reader waits for.
_MAY_COME = {
    "value": ("open", "string", "literal"),
    "first value": ("open", "string", "literal", "close"),
    "key": ("string",),
    "first key": ("string", "close"),
    "colon": ("colon",),
    "next": ("comma", "close"),
}


class _Written(str):
    """A number as it stands in the text."""


_DECODER = json.JSONDecoder(parse_int=_Written, parse_float=_Written)


def parse_path(path: str) -> Path:
    """The steps of a path.

    Raises:
        RewardError: it is none; the message says from where on.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise RewardError(
                f"The path of the answer schema {'json:' + path!r} cannot be read from {path[position:]!r} on: write "
                'keys with dots and indices in brackets, such as answer.value, results[0].x or ["my key"].'
            )
        if step["key"] is not None:
            steps.append(step["key"])
        else:
            steps.append(int(step["index"]) if step["index"] else json.loads(step["quoted"]))
        position = step.end()
    return tuple(steps)


def last_at(text: str, path: Path) -> str | None:
    """What is at the path of the last value that has it, as text; None if none has."""
    opening = "[" if isinstance(path[0], int) else "{"
    least = sum(3 if isinstance(step, int) else len(step) + 5 for step in path)  # of [1], and of {"key":1}
    for start, end in reversed(_complete_values(text)):
        if text[start] == opening and end - start >= least:
            found = _walk(_parsed(text[start:end]), path)
            if found is not None:
                return _as_text(found)
    return None


def _complete_values(text: str) -> list[tuple[int, int]]:
    """Where the complete lists and objects of a text begin and end, those inside others left out."""
    spans: list[tuple[int, int]] = []
    position = 0
    while opening := _OPENING.search(text, position):
        position = _read_value(text, opening.start(), spans)
    return spans


def _read_value(text: str, start: int, spans: list[tuple[int, int]]) -> int:
    """Read the value at a bracket, add what is complete of it to ``spans``, and say where to go on."""
    opened: list[int] = []
    waits_for = "value"
    position = again = start
    while token := _TOKEN.match(text, position):
        kind = token.lastgroup
        if kind not in _MAY_COME[waits_for] or (kind == "open" and len(opened) == MAX_DEPTH):
            break
        if kind == "open":
            opened.append(token.start(kind))
            waits_for = "first key" if token[kind] == "{" else "first value"
        elif kind == "close":
            if (text[opened[-1]] == "{") != (token[kind] == "}"):
                break
            inside = opened.pop()
            while spans and spans[-1][0] > inside:
                spans.pop()
            spans.append((inside, token.end()))
            if not opened:
                return token.end()
            waits_for = "next"
        elif kind == "comma":
            waits_for = "key" if text[opened[-1]] == "{" else "value"
        elif kind == "colon":
            waits_for = "value"
        else:
            waits_for = "colon" if waits_for.endswith("key") else "next"
        position = token.end()
        again = token.start(kind) + 1 if kind == "string" else position
    return again


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:  # a faulty \u in a string, which the reader does not look into
        return None


def _walk(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return ", ".join(map(_as_text, value))
    return _as_json(value)


def _as_json(value: Any) -> str:
    if isinstance(value, _Written):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_as_json, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_json(key)}: {_as_json(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
