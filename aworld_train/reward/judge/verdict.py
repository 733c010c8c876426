"""Parsing a judge's verdict strictly: a text that is not exactly a verdict is rejected.

A program cannot reliably read "Not correct", "correct, not incorrect" or "correct? No.", and a wrong reward is worse
than none. A verdict is one of these:

- a JSON object with nothing around it, of which ``"verdict": "correct"`` or ``"incorrect"`` alone counts, or, as in the
  prompts of HLE and BrowseComp, ``"correct": "yes"`` or ``"no"``;
- a last line ``VERDICT code: CORRECT`` or ``INCORRECT`` with the code of the request, which no answer can know;
- a last line without the code, or ``correct: yes`` or ``no``, which a line with a confidence may follow. Any other
  verdict in the text must then agree with it, unless it stands in the answer, which judges quote. A last line that
  stands in the answer does not make it right.

An answer that names verdicts must not make a judge unreadable either, or a policy would learn to name them: where the
last line is ``incorrect``, whatever else the text says may be a quote of such an answer.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

_THOUGHT_BEGINS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
# Markdown emphasis around it is allowed.
_LINE = re.compile(
    r"[*_`]*(?:VERDICT(?: +(?P<code>[0-9a-f]+))?[*_`]*\s*:[*_`]*\s*[*_`]*(?P<verdict>CORRECT|INCORRECT)"
    r"|CORRECT[*_`]*\s*:[*_`]*\s*[*_`]*(?P<word>YES|NO))[*_`]*\.?[*_`]*",
    re.IGNORECASE,
)
_MAX_LINE_CHARS = 60  # this and the bounds below keep matching time linear in the text
_CALLED_VERDICT = re.compile(
    r"(?:verdict[\W_]{0,8}?:[\W_]{0,8}|\bcorrect[*_`]{0,4}:[\W_]{0,8}(?=(?:yes|no)\b))([a-z]*)", re.IGNORECASE
)
_MAX_TRIED = 50  # ends of thinking after which a JSON object may begin
_CONFIDENCE = re.compile(r"[*_`]*confidence[*_`]*\s*:[*_`\s]*[0-9.]{1,6}\s*%?[*_`]*", re.IGNORECASE)


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


_WORDS = {
    "correct": Verdict.correct,
    "yes": Verdict.correct,
    "incorrect": Verdict.incorrect,
    "no": Verdict.incorrect,
}


def read_verdict(text: str, answer: str = "", code: str = "") -> JudgedVerdict:
    """The verdict in a judge's text.

    Args:
        text: The judge's text.
        answer: The answer that was judged, which the judge may have quoted.
        code: The code of the request.

    Raises:
        UnreadableVerdict: There is none, or there are several that differ.
    """
    if (data := _as_object(text.strip())) is not None:  # a reason in it may quote what looks like thinking
        return _verdict_in(data)
    if (data := _object_after_thinking(text)) is not None:
        return _verdict_in(data)
    visible = _after_thinking(text, answer).strip()
    if not visible:
        raise UnreadableVerdict("it said nothing")
    *reason, last = _without_confidence(visible.splitlines())
    match = _LINE.fullmatch(last.strip()[: _MAX_LINE_CHARS + 1])
    if match is None:
        raise UnreadableVerdict("its last line is no verdict")
    verdict = _WORDS[(match["verdict"] or match["word"]).lower()]
    if not code or match["code"] != code:
        if match["code"]:
            raise UnreadableVerdict("its verdict has the code of another request")
        _check_quotes(verdict, last, visible, answer)
    return JudgedVerdict(verdict, "\n".join(reason).strip())


def _without_confidence(lines: list[str]) -> list[str]:
    if len(lines) > 1 and _CONFIDENCE.fullmatch(lines[-1].strip()[: _MAX_LINE_CHARS + 1]):
        lines = "\n".join(lines[:-1]).rstrip().splitlines()
    return lines


def _after_thinking(text: str, answer: str) -> str:
    visible = _THOUGHT_ENDS.split(text)[-1]
    if _THOUGHT_BEGINS.search(visible) and not _THOUGHT_BEGINS.search(answer):  # else it is quoted
        raise UnreadableVerdict("its thinking has no end")
    return visible


def _object_after_thinking(text: str) -> dict[str, Any] | None:
    """The object that is all of the text after an end of thinking; another end may stand in its reason, as a quote."""
    for match in islice(_THOUGHT_ENDS.finditer(text), _MAX_TRIED):
        if (data := _as_object(text[match.end() :].strip())) is not None:
            return data
    return None


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
    names = [name for name in ("verdict", "correct") if name in data]
    if len(names) != 1:
        raise UnreadableVerdict("its JSON has no verdict" if not names else "its JSON has two verdicts")
    value = data[names[0]]
    words = ("correct", "incorrect") if names[0] == "verdict" else ("yes", "no")
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in words:
        raise UnreadableVerdict(f"its JSON has no verdict that is {' or '.join(words)}")
    reason = data.get("reason", data.get("reasoning"))
    return JudgedVerdict(_WORDS[word], reason.strip() if isinstance(reason, str) else "")


def _check_quotes(verdict: Verdict, last: str, text: str, answer: str) -> None:
    """Check that a last line without the code is the judge's own, and its only verdict.

    Raises:
        UnreadableVerdict: It may be a quote of the answer, or the text has another verdict that is none.
    """
    quotable = _letters(answer)
    if verdict is Verdict.incorrect and any(word in quotable for word in ("correct", "verdict")):
        return
    if _letters(last) in quotable:
        raise UnreadableVerdict("its last line stands in the answer too, and lacks the code of the request")
    for mention in _CALLED_VERDICT.finditer(text):
        if _WORDS.get(mention[1].lower()) is not verdict and _letters(mention[0]) not in quotable:
            raise UnreadableVerdict("it gave verdicts that differ")


def _letters(text: str) -> str:
    """The letters and digits of a text: a quote may change case, spacing, emphasis and signs that do not show."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
