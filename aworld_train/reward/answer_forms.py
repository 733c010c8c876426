"""An answer in the form that an answer schema reads: the inverse of `extraction`, to check a benchmark with its own
right answers. Every text is read back; an answer that the schema cannot hold gives None.
"""

import json
from collections.abc import Callable
from functools import partial

from aworld_train.reward.extraction import extract
from aworld_train.reward.json_values import Path, parse_path
from aworld_train.reward.pattern_texts import text_around

_MAX_INDEX = 1000
"""Most elements of a list that is written for the sake of one of them."""


def with_answer(answer: str, answer_schema: str) -> str | None:
    """A text in which the schema finds the answer, or the answer with its spacing made plain; None if there is none."""
    write = _writer(answer_schema)
    # Most scorers read a line break as a space, and some schemas cannot hold one.
    for candidate in dict.fromkeys((answer.strip(), " ".join(answer.split()))):
        text = write(candidate) if candidate else None
        if text is not None and extract(text, answer_schema) == candidate:
            return text
    return None


def _writer(answer_schema: str) -> Callable[[str], str | None]:
    name, _, argument = answer_schema.partition(":")
    if name == "json" and argument:
        return partial(_as_json, path=parse_path(argument))
    if name == "regex" and argument:
        return partial(text_around, pattern=argument)
    return {"answer": _tagged, "boxed": _boxed}.get(answer_schema, str)


def _tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def _as_json(answer: str, path: Path) -> str | None:
    value: object = answer
    for step in reversed(path):
        if not isinstance(step, int):
            value = {step: value}
        elif step < 0 and -step <= _MAX_INDEX:
            value = [value, *[None] * (-step - 1)]
        elif step < _MAX_INDEX:
            value = [*[None] * step, value]
        else:
            return None
    return json.dumps(value, ensure_ascii=False)
