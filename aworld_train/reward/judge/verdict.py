"""Reading a judge's verdict: what is not exactly one is none.

A judge that says "Not correct", "correct, not incorrect" or "correct? No." has said something to a person, and a wrong
reward is worse than none. A verdict is a JSON object with ``"verdict": "correct"`` or ``"incorrect"`` and nothing
around it, or a last line ``VERDICT: CORRECT`` or ``VERDICT: INCORRECT``; whatever else calls itself a verdict must say
the same.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_THOUGHT_BEGINS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
# Markdown emphasis around it is no part of what was said.
_LINE = re.compile(r"[*_`]*VERDICT[*_`]*\s*:[*_`]*\s*[*_`]*(CORRECT|INCORRECT)[*_`]*\.?[*_`]*", re.IGNORECASE)
_LONGEST_LINE = 40  # characters; with this, and with the bounds below, no text takes long to look through
_CALLED_VERDICT = re.compile(r"verdict[\W_]{0,8}?:[\W_]{0,8}([a-z]*)", re.IGNORECASE)


class Verdict(StrEnum):
    """What a judge decides."""

    correct = "correct"
    incorrect = "incorrect"


@dataclass(frozen=True)
class JudgedVerdict:
    """A verdict and the reason that was given for it."""

    verdict: Verdict
    reason: str


class Unreadable(Exception):
    """What a judge said is not a verdict; the message says why."""


def read_ruling(text: str) -> JudgedVerdict:
    """The verdict in what a judge said.

    Raises:
        Unreadable: There is none, or there are several that differ.
    """
    said = _after_thinking(text).strip()
    if not said:
        raise Unreadable("it said nothing")
    data = _as_object(said)
    if data is not None:
        return _ruling_of(data)
    *before, last = said.splitlines()
    found = _LINE.fullmatch(last.strip()[: _LONGEST_LINE + 1])
    if found is None:
        raise Unreadable("its last line is no verdict")
    verdict = Verdict(found[1].lower())
    _check_agreement(verdict, [said])
    return JudgedVerdict(verdict, "\n".join(before).strip())


def _after_thinking(text: str) -> str:
    said = _THOUGHT_ENDS.split(text)[-1]
    if _THOUGHT_BEGINS.search(said):
        raise Unreadable("its thinking has no end")
    return said


def _as_object(said: str) -> dict[str, Any] | None:
    fenced = _FENCED.fullmatch(said)
    try:
        data = json.loads(fenced[1] if fenced else said, object_pairs_hook=_each_key_once)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise Unreadable("its JSON says a key twice")
    return data


def _ruling_of(data: dict[str, Any]) -> JudgedVerdict:
    said = data.get("verdict")
    try:
        verdict = Verdict(said.strip().lower() if isinstance(said, str) else "")
    except ValueError as error:
        raise Unreadable("its JSON has no verdict that is correct or incorrect") from error
    others = [value for key, value in data.items() if key != "verdict" and isinstance(value, str)]
    _check_agreement(verdict, others)
    reason = data.get("reason")
    return JudgedVerdict(verdict, reason.strip() if isinstance(reason, str) else "")


def _check_agreement(verdict: Verdict, texts: Iterable[str]) -> None:
    for text in texts:
        if any(other.lower() != verdict for other in _CALLED_VERDICT.findall(text)):
            raise Unreadable("it gave verdicts that differ")
