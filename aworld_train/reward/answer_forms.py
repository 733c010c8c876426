"""An answer in the form that an answer schema reads: the inverse of `extraction`, to check a benchmark with its own
right answers. Every text is read back; an answer that the schema cannot hold gives None.
"""

import json
import re
from collections.abc import Callable
from functools import partial

from aworld_train.errors import RewardError
from aworld_train.reward.extraction import compile_pattern, extract
from aworld_train.reward.json_values import Path, parse_path

_MAX_INDEX = 1000
_GROUP = re.compile(r"\((?:(?P<named>\?P?<(?P<name>\w+)>)|(?P<flags>\?[imsU-]*\))|(?P<plain>\?[imsU-]*:))?")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|[pP]\w|x\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_POSITION = re.compile(r"\\[bBAz]|[\^$]")
_REPETITION = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<least>[0-9]{1,3})(?:,[0-9]*)?\})\??")
_CHARACTERS = "a0 :A.-#\n"
_ANSWER = "answer"


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
    return {"answer": "<answer>{}</answer>".format, "boxed": r"\boxed{{{}}}".format}.get(answer_schema, str)


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


def text_around(answer: str, pattern: str) -> str | None:
    """A text in which the pattern's group (that of `last_match`) may be the answer; the answer itself without a group.

    What may be missing is left out. Not every pattern can be met in this way: whoever uses a text has to try the
    pattern on it. None where the pattern cannot be read here.
    """
    compiled = compile_pattern(pattern)
    if not compiled.groups:
        return answer
    reader = _Reader(pattern, compiled.groupindex.get(_ANSWER, 1), answer)
    text, has_group = reader.alternatives()
    return text if has_group and reader.is_at_end else None


class _Reader:
    """Reads a pattern piece by piece; each method returns a text for a piece, and whether it has the answer."""

    def __init__(self, pattern: str, group: int, answer: str):
        self._pattern, self._group, self._answer = pattern, group, answer
        self._position = self._groups = 0

    @property
    def is_at_end(self) -> bool:
        return self._position >= len(self._pattern)

    def alternatives(self) -> tuple[str, bool]:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return next((branch for branch in branches if branch[1]), branches[0])

    def _sequence(self) -> tuple[str, bool]:
        text, has_group = "", False
        while not self.is_at_end and self._pattern[self._position] not in "|)":
            piece, has_answer = self._repeated(*self._piece())
            text, has_group = text + piece, has_group or has_answer
        return text, has_group

    def _repeated(self, text: str, has_group: bool) -> tuple[str, bool]:
        match = self._match(_REPETITION)
        if match is None:
            return text, has_group
        least = int(match["least"]) if match["least"] else int(match["sign"] == "+")
        return text * max(least, has_group), has_group

    def _piece(self) -> tuple[str, bool]:
        if self._match(_POSITION):
            return "", False
        if group := self._match(_GROUP):
            return self._inside(group)
        if characters := self._match(_CLASS) or self._match(_ESCAPE):
            return _one_of(characters[0]), False
        self._position += 1
        character = self._pattern[self._position - 1]
        return _CHARACTERS[0] if character == "." else character, False

    def _inside(self, group: re.Match[str]) -> tuple[str, bool]:
        if group["flags"]:
            return "", False
        is_answer = False
        if not group["plain"]:
            self._groups += 1
            is_answer = self._groups == self._group
        text, has_group = self.alternatives()
        self._take(")")
        return (self._answer, True) if is_answer else (text, has_group)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._pattern, self._position)
        if match:
            self._position = match.end()
        return match

    def _take(self, character: str) -> bool:
        taken = self._pattern.startswith(character, self._position)
        self._position += taken
        return taken


def _one_of(characters: str) -> str:
    """A character that a class or an escape matches; empty for one that none is found for."""
    try:
        compiled = compile_pattern(characters)
    except RewardError:  # a part of a pattern that this module does not know, such as \Q...\E
        return ""
    return next((one for one in (*_CHARACTERS, *characters) if compiled.fullmatch(one)), "")
