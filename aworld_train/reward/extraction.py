r"""Extracting the answer from the assistant's text by the row's answer schema.

Only text outside thinking counts. The last complete answer wins; a truncated one after it does not replace it. Each
schema reads any text in linear time.

===================  =====================================================================================
``answer``           The last complete ``<answer>...</answer>``, in letters of any case.
``boxed``            The last complete ``\boxed{...}`` or ``\fbox{...}``, or ``\boxed 5``; of nested boxes the last.
``json:PATH``        The value at ``PATH`` (``answer.value``, ``results[0].x``) of the last JSON value that has it.
``regex:PATTERN``    The last match of an RE2 pattern: its group ``answer``, else its first group, else all of it.
``last_line``        The last line that is not blank.
===================  =====================================================================================
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial

from aworld_train.errors import RewardError, nearest
from aworld_train.reward.assistant_text import outside_thinking
from aworld_train.reward.boxes import last_box
from aworld_train.reward.json_values import last_at, parse_path
from aworld_train.reward.patterns import compile_pattern, last_match

PLAIN_SCHEMAS = ("answer", "boxed", "last_line")
SCHEMAS_WITH_ARGUMENT = {"json": "PATH", "regex": "PATTERN"}

_TAG = re.compile(r"<(?P<closes>/?)answer\s*+>", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n?|\n")

_Finder = Callable[[str], str | None]


def extract(text: str, answer_schema: str) -> str | None:
    """The answer in the assistant's text, without surrounding space; None if there is none.

    Raises RewardError if there is no such schema, or its path or pattern is faulty.
    """
    find = _finder(answer_schema)
    for piece in reversed(outside_thinking(text)):
        answer = find(piece)
        if answer is not None:
            return answer.strip()
    return None


def check_schema_name(answer_schema: str) -> None:
    """Check that there is such a schema and that it can be read, before anything is scored."""
    _finder(answer_schema)


@lru_cache(maxsize=256)
def _finder(answer_schema: str) -> _Finder:
    if answer_schema == "answer":
        return _last_tagged
    if answer_schema == "boxed":
        return last_box
    if answer_schema == "last_line":
        return _last_line
    name, colon, argument = answer_schema.partition(":")
    if name == "json" and argument:
        return partial(last_at, path=parse_path(argument))
    if name == "regex" and argument:
        return partial(last_match, pattern=compile_pattern(argument))
    if name in SCHEMAS_WITH_ARGUMENT:
        raise RewardError(
            f"The answer schema {answer_schema!r} lacks what to look for: write {name}:{SCHEMAS_WITH_ARGUMENT[name]}."
        )
    if colon and name in PLAIN_SCHEMAS:
        raise RewardError(
            f"The answer schema {name!r} takes no argument: write {name}, not {answer_schema!r}."
        )
    raise RewardError(_unknown(name, answer_schema))


def _unknown(name: str, answer_schema: str) -> str:
    forms = {plain: plain for plain in PLAIN_SCHEMAS} | {
        key: f"{key}:{argument}" for key, argument in SCHEMAS_WITH_ARGUMENT.items()
    }
    near = nearest(name.lower(), set(forms))
    hint = f" Did you mean {forms[near]}?" if near else ""
    return f"There is no answer schema {answer_schema!r}.{hint} There are {', '.join(forms.values())}."


def _last_tagged(text: str) -> str | None:
    answer: str | None = None
    start: int | None = None
    for tag in _TAG.finditer(text):
        if not tag["closes"]:
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def _last_line(text: str) -> str | None:
    text = text.rstrip()
    return _LINE_END.split(text)[-1] if text else None
