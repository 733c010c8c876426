"""The last JSON value of a text that has something at a path.

Most brackets in prose do not begin a value, so the text is read once by the grammar of JSON: where a value breaks off,
the complete values inside it still count, and reading continues from there.

A path is keys with dots between them and indices in brackets, which may count from the end: ``answer.value``,
``results[0].x``, ``[-1]``, ``["my key"]``. A null at the path is not an answer. A list of plain values is joined by
``, ``, an object becomes JSON text, and numbers stay as they are in the text.
"""

import json
import re
from typing import Any

from aworld_train.errors import RewardError

MAX_DEPTH = 100
"""Of nested brackets; deeper ones count as text. No answer needs more, and it bounds the recursion of the parser."""

Path = tuple[str | int, ...]

_STEP = re.compile(
    r"""(?:^|(?<=.)\.)(?P<key>[^\s.\[\]"']+)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)+")\]"""
)
# A bracket, if what follows can continue a value.
_OPENING = re.compile(r"""[{](?=[ \t\r\n]*+["}])|\[(?=[ \t\r\n]*+["{\[\]\-0-9tfn])""")
_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<open>[{\[]) | (?P<close>[}\]]) | (?P<comma>,) | (?P<colon>:)
        | (?P<string>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrtu])*+")
        | (?P<literal>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
    )""",
    re.VERBOSE,
)
# The tokens that may come next, by the state of the reader.
_NEXT_TOKENS = {
    "value": ("open", "string", "literal"),
    "first value": ("open", "string", "literal", "close"),
    "key": ("string",),
    "first key": ("string", "close"),
    "colon": ("colon",),
    "next": ("comma", "close"),
}


class _NumberText(str):
    """A number, as it is written in the text."""


_DECODER = json.JSONDecoder(parse_int=_NumberText, parse_float=_NumberText)


def parse_path(path: str) -> Path:
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
    """The value at the path, as text, of the last JSON value that has the path; None if none has it."""
    opening = "[" if isinstance(path[0], int) else "{"
    # The lengths of [1] and of {"key":1}.
    min_chars = sum(3 if isinstance(step, int) else len(step) + 5 for step in path)
    for start, end in reversed(_complete_values(text)):
        if text[start] == opening and end - start >= min_chars:
            value = _walk(_parsed(text[start:end]), path)
            if value is not None:
                return _as_text(value)
    return None


def _complete_values(text: str) -> list[tuple[int, int]]:
    """Start and end of each complete list or object in a text; those inside others are left out."""
    spans: list[tuple[int, int]] = []
    position = 0
    while opening := _OPENING.search(text, position):
        position = _read_value(text, opening.start(), spans)
    return spans


def _read_value(text: str, start: int, spans: list[tuple[int, int]]) -> int:
    open_brackets: list[int] = []
    state = "value"
    position = resume = start
    while token := _TOKEN.match(text, position):
        kind = token.lastgroup
        if kind not in _NEXT_TOKENS[state] or (kind == "open" and len(open_brackets) == MAX_DEPTH):
            break
        if kind == "open":
            open_brackets.append(token.start(kind))
            state = "first key" if token[kind] == "{" else "first value"
        elif kind == "close":
            if (text[open_brackets[-1]] == "{") != (token[kind] == "}"):
                break
            start_of_value = open_brackets.pop()
            while spans and spans[-1][0] > start_of_value:
                spans.pop()
            spans.append((start_of_value, token.end()))
            if not open_brackets:
                return token.end()
            state = "next"
        elif kind == "comma":
            state = "key" if text[open_brackets[-1]] == "{" else "value"
        elif kind == "colon":
            state = "value"
        else:
            state = "colon" if state.endswith("key") else "next"
        position = token.end()
        resume = token.start(kind) + 1 if kind == "string" else position
    return resume


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:  # an invalid \u in a string, which the reader does not check
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
    if isinstance(value, _NumberText):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_as_json, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_json(key)}: {_as_json(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
