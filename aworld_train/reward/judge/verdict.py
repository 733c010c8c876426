"""Parsing a judge's verdict strictly: a text that is not exactly a verdict is rejected.

A program cannot reliably read "Not correct", "correct, not incorrect" or "correct? No.", and a wrong reward is worse
than none. A verdict is a JSON object with ``"verdict": "correct"`` or ``"incorrect"`` and nothing around it, or a last
line ``VERDICT: CORRECT`` or ``VERDICT: INCORRECT``; any other "verdict:" in the text must agree with it.
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
# Markdown emphasis around it is allowed.
_LINE = re.compile(r"[*_`]*VERDICT[*_`]*\s*:[*_`]*\s*[*_`]*(CORRECT|INCORRECT)[*_`]*\.?[*_`]*", re.IGNORECASE)
_MAX_LINE_CHARS = 40  # this and the bounds below keep matching time linear in the text
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


class UnreadableVerdict(Exception):
    """A judge's text is not a verdict; the message says why."""


def read_verdict(text: str) -> JudgedVerdict:
    """The verdict in a judge's text.

    Raises:
        UnreadableVerdict: There is none, or there are several that differ.
    """
    visible = _after_thinking(text).strip()
    if not visible:
        raise UnreadableVerdict("it said nothing")
    data = _as_object(visible)
    if data is not None:
        return _verdict_in(data)
    *reason, last = visible.splitlines()
    match = _LINE.fullmatch(last.strip()[: _MAX_LINE_CHARS + 1])
    if match is None:
        raise UnreadableVerdict("its last line is no verdict")
    verdict = Verdict(match[1].lower())
    _check_agreement(verdict, [visible])
    return JudgedVerdict(verdict, "\n".join(reason).strip())


def _after_thinking(text: str) -> str:
    visible = _THOUGHT_ENDS.split(text)[-1]
    if _THOUGHT_BEGINS.search(visible):
        raise UnreadableVerdict("its thinking has no end")
    return visible


def _as_object(text: str) -> dict[str, Any] | None:
    fenced = _FENCED.fullmatch(text)
    try:
        data = json.loads(fenced[1] if fenced else text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise UnreadableVerdict("its JSON says a key twice")
    return data


def _verdict_in(data: dict[str, Any]) -> JudgedVerdict:
    value = data.get("verdict")
    try:
        verdict = Verdict(value.strip().lower() if isinstance(value, str) else "")
    except ValueError as error:
        raise UnreadableVerdict("its JSON has no verdict that is correct or incorrect") from error
    others = [value for key, value in data.items() if key != "verdict" and isinstance(value, str)]
    _check_agreement(verdict, others)
    reason = data.get("reason")
    return JudgedVerdict(verdict, reason.strip() if isinstance(reason, str) else "")


def _check_agreement(verdict: Verdict, texts: Iterable[str]) -> None:
    for text in texts:
        if any(other.lower() != verdict for other in _CALLED_VERDICT.findall(text)):
            raise UnreadableVerdict("it gave verdicts that differ")
