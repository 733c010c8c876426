"""Parsing a judge's verdict strictly: a wrong reward is worse than none. A verdict is one of these:

- a JSON object with nothing around it, of which one key alone counts: ``"verdict"``, ``"judgement"`` or ``"grade"`` is
  ``"correct"`` or ``"incorrect"``, ``"correct"`` is ``"yes"``, ``"no"``, true or false;
- a last line ``VERDICT code: CORRECT`` or ``INCORRECT`` with the code of the request, which no answer can know;
- a last line without the code, ``judgement: correct``, ``correct: yes`` or ``no``, ``结论: 正确`` or ``错误``, which a
  line with a confidence may follow. Any other verdict in the text must then agree with it, unless it is in the
  answer, which judges quote. A last line that is in the answer does not make it right;
- the words that the judge's instructions define (see `forms`), as ``A``, ``TRUE`` or ``NOT_ATTEMPTED``, alone on the
  last line.

An answer that names verdicts must not make a judge unreadable either, or a policy would learn to name them: where the
last line is ``incorrect``, whatever else the text says may be a quote of such an answer.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aworld_train.reward.judge.forms import NO_FORMS, Forms, Verdict

_THOUGHT_BEGINS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
# Markdown emphasis and quotes around it are allowed.
_LINE = re.compile(
    r"[*_`\"'(]*(?:(?P<label>VERDICT|CORRECT|JUDGE?MENT|GRADE|DECISION|SCORE|结论|判断)(?: +(?P<code>[0-9a-f]{2,}))?"
    r"[*_`]*\s*[:：][*_`]*\s*[*_`\"'(]*)?(?:(?P<letter>[A-Z])[:.)] *)?"
    r"(?P<word>[A-Z]+(?:[_ ]ATTEMPTED)?|[01]|[正确错误不]{2,3})[*_`\"')]*[.。]?[*_`]*",
    re.IGNORECASE,
)
_MAX_LINE_CHARS = 60  # this and the bounds below keep matching time linear in the text
_CALLED_VERDICT = re.compile(
    r"(?:(?:verdict|judge?ment|\bgrade)[\W_]{0,8}?[:：][\W_]{0,8}"
    r"|\bcorrect[*_`]{0,4}[:：][\W_]{0,8}(?=(?:yes|no|true|false)\b))([a-z]*(?:[_ ]attempted)?)"
    r"|结论[*_`]{0,4}\s?[:：][*_`\s]{0,8}([正确错误不]*)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_MAX_TRIED = 50  # ends of thinking after which a JSON object may begin
_CONFIDENCE = re.compile(
    r"[*_`]*(?:confidence|置信度)[*_`]*\s*[:：][*_`\s]*(?P<value>[0-9.]{1,6}\s*%?|none)[*_`]*", re.IGNORECASE
)

_GRADES = {"correct": Verdict.correct, "incorrect": Verdict.incorrect}
_TRUTH = {
    **dict.fromkeys(("yes", "true"), Verdict.correct),
    **dict.fromkeys(("no", "false"), Verdict.incorrect),
}
_CHINESE = {"正确": Verdict.correct, "错误": Verdict.incorrect, "不正确": Verdict.incorrect}
_WORDS = {**_GRADES, **_TRUTH, **_CHINESE}
_WORDS_BY_LABEL = {
    **dict.fromkeys(("verdict", "judgement", "judgment", "grade"), _GRADES),
    **dict.fromkeys(("correct", "is_correct"), _TRUTH),
    **dict.fromkeys(("结论", "判断"), _CHINESE),
}
"""The words that are a verdict after a label, or as the value of a key, whatever the instructions say."""
_LABELS_OF_DEFINED_WORDS = ("verdict", "judgement", "judgment", "grade", "decision", "score")


@dataclass(frozen=True)
class JudgedVerdict:
    """A verdict; ``confidence`` is how sure the judged answer says that it is, from 0 to 1 if it says so."""

    verdict: Verdict
    reason: str
    confidence: float | None = None


class UnreadableVerdict(Exception):
    """A judge's text is not a verdict; the message says why."""


def read_verdict(text: str, answer: str = "", code: str = "", forms: Forms = NO_FORMS) -> JudgedVerdict:
    """The verdict in a judge's text, which may quote ``answer``; raises UnreadableVerdict."""
    for piece in _may_be_objects(text):
        if (data := _as_object(piece)) is not None:
            judged = _verdict_in(data, forms)
            if judged.verdict is Verdict.correct and _is_echo(data, _letters(answer), forms):
                raise UnreadableVerdict("its JSON is in the answer too")
            return judged
    visible = _after_thinking(text, answer).strip()
    if not visible:
        raise UnreadableVerdict("it said nothing")
    lines, confidence = _without_confidence(visible.splitlines(), forms)
    *reason, last = lines
    line = _read_line(last, forms)
    if line is None:
        raise UnreadableVerdict("its last line is not a verdict")
    if line.code and line.code != code:
        raise UnreadableVerdict("its verdict has the code of another request")
    _check_quotes(line, "\n".join(reason), visible, answer, forms)
    return JudgedVerdict(line.verdict, "\n".join(reason).strip(), confidence)


@dataclass(frozen=True)
class _Line:
    text: str
    verdict: Verdict
    is_labelled: bool
    code: str


def _read_line(text: str, forms: Forms) -> _Line | None:
    match = _LINE.fullmatch(text.strip()[: _MAX_LINE_CHARS + 1])
    if match is None:
        return None
    label = (match["label"] or "").lower()
    words = _words(label, forms)
    verdict = words.get(_plain_word(match["word"]))
    if match["letter"] and words.get(match["letter"].lower()) is not verdict:
        return None
    if verdict is None or (match["code"] and label != "verdict"):
        return None
    return _Line(text, verdict, bool(label), match["code"] or "")


def _words(label: str, forms: Forms) -> Mapping[str, Verdict]:
    """The words that are a verdict after a label; an empty one is that of a line with nothing but a word."""
    words = _WORDS_BY_LABEL.get(label, {})
    return {**words, **forms.words} if not label or label in _LABELS_OF_DEFINED_WORDS else words


def _without_confidence(lines: list[str], forms: Forms) -> tuple[list[str], float | None]:
    confidence = None
    match = _CONFIDENCE.fullmatch(lines[-1].strip()[: _MAX_LINE_CHARS + 1])
    if match and len(lines) > 1:
        lines = "\n".join(lines[:-1]).rstrip().splitlines()
    elif before := "\n".join(lines[:-1]).rstrip().splitlines():
        match = _CONFIDENCE.fullmatch(before[-1].strip()[: _MAX_LINE_CHARS + 1])
    if match and forms.confidence:
        confidence = _share(match["value"])
    return lines, confidence


def _share(text: str) -> float | None:
    """A confidence from 0 to 1, or None; HLE's and BrowseComp's prompts ask for whole numbers in percent."""
    number = text.strip().removesuffix("%").strip()
    try:
        value = float(number)
    except ValueError:
        return None
    is_percent = text.strip().endswith("%") or "." not in number or value > 1
    share = value / 100 if is_percent else value
    return share if 0 <= share <= 1 else None


def _after_thinking(text: str, answer: str) -> str:
    visible = _THOUGHT_ENDS.split(text)[-1]
    if _THOUGHT_BEGINS.search(visible) and not _THOUGHT_BEGINS.search(answer):  # else it is quoted
        raise UnreadableVerdict("its thinking has no end")
    return visible


def _may_be_objects(text: str) -> Iterator[str]:
    """The text, and what follows each end of thinking: the object's reason may quote what looks like thinking."""
    yield text.strip()
    for match in islice(_THOUGHT_ENDS.finditer(text), _MAX_TRIED):
        yield text[match.end() :].strip()


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


def _verdict_in(data: dict[str, Any], forms: Forms) -> JudgedVerdict:
    names = [name for name in data if _words(name, forms) and name]
    if len(names) != 1:
        raise UnreadableVerdict("its JSON has no verdict" if not names else "its JSON has two verdicts")
    (name,) = names
    words = _words(name, forms)
    verdict = words.get(_word(name, data[name]))
    if verdict is None:
        raise UnreadableVerdict(f"its JSON has no verdict that is {' or '.join(words)}")
    reason = data.get("reason", data.get("reasoning"))
    confidence = _share(str(data.get("confidence"))) if forms.confidence else None
    return JudgedVerdict(verdict, reason.strip() if isinstance(reason, str) else "", confidence)


def _is_echo(data: dict[str, Any], quotable: str, forms: Forms) -> bool:
    if not data:
        return False
    for name, value in data.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        label = name if _words(name, forms) and name else ""
        if _letters(label + text) not in quotable:
            return False
    return True


def _word(name: str, value: object) -> str:
    if isinstance(value, str):
        return _plain_word(value.strip())
    if isinstance(value, bool):
        return str(value).lower() if _WORDS_BY_LABEL.get(name) is _TRUTH else ""
    return str(value) if isinstance(value, int) and name == "score" else ""


def _plain_word(word: str) -> str:
    return word.lower().replace(" ", "_")


def _check_quotes(line: _Line, reason: str, text: str, answer: str, forms: Forms) -> None:
    """Check that a last line is the judge's own, and its only verdict."""
    quotable, is_correct = _letters(answer), line.verdict is Verdict.correct
    if not is_correct and _names_verdicts(answer, quotable, forms):
        return
    # What an echo of the answer leaves to be read begins after an end of thinking.
    quoted_lines = {_letters(each) for each in _THOUGHT_ENDS.sub("\n", answer).splitlines()}
    stands_in_answer = _letters(line.text) in (quotable if line.is_labelled else quoted_lines)
    if is_correct and stands_in_answer and not line.code:
        raise UnreadableVerdict("its last line is in the answer too, and lacks the code of the request")
    # A single letter is in nearly every text.
    letters_alone = quoted_lines if is_correct else {_letters(word) for word in _WORD.findall(answer)}
    for mention, verdict in _other_verdicts(reason, text, forms):
        letters = _letters(mention)
        is_quote = letters in (quotable if len(letters) > 1 else letters_alone)
        # With the code the line is the judge's own, and only what is certainly another verdict contradicts it.
        if verdict is not line.verdict and not is_quote and (verdict is not None or not line.code):
            raise UnreadableVerdict("it gave verdicts that differ")


def _other_verdicts(reason: str, text: str, forms: Forms) -> Iterator[tuple[str, Verdict | None]]:
    for mention in _CALLED_VERDICT.finditer(text):
        yield mention[0], (_WORDS | dict(forms.words)).get(_plain_word(mention[1] or mention[2] or ""))
    for each in reason.splitlines():
        if (line := _read_line(each, forms)) is not None:
            yield each, line.verdict


def _names_verdicts(answer: str, quotable: str, forms: Forms) -> bool:
    """Whether an answer has words of verdicts, which a judge that quotes it repeats."""
    if any(word in quotable for word in ("correct", "verdict", "judgement", "judgment", "grade", "结论")):
        return True
    return any(_read_line(line, forms) is not None for line in answer.splitlines())


def _letters(text: str) -> str:
    """The letters and digits of a text: a quote may change case, spacing, emphasis and signs that do not show."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
