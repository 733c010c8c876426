r"""Answers to questions with choices: a choice is named by its label, its text, or both if they agree.

Of a question that lists ``A. Quito`` and ``B. Lima``, ``(B)``, ``**B**``, ``\boxed{B}``, ``B. Lima`` and ``Lima`` are
the answer B; ``C. Lima`` and ``A or B`` name no choice.
"""

import re
from functools import lru_cache

from aworld_train.reward.numbers import undressed
from aworld_train.reward.text_normalization import fold

_MAX_CHARS = 1000
_MAX_QUESTION_CHARS = 20_000
_LABEL = r"(?P<label>[A-Za-z]|[0-9]{1,2})"
_FIRST_LABELS = ("A", "1", "0")
_LINE = re.compile(rf"\s*\(?{_LABEL}[).:][ \t]+(?P<text>\S.*?)\s*")
_NAMED = re.compile(
    rf"(?:(?:option|choice)\s+)?(?P<bracket>[(\[])?{_LABEL}(?:(?:[)\].:]|\s-(?=\s))(?P<text>.*))?",
    re.DOTALL | re.IGNORECASE,
)
_COMMAND = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_SECOND_LABEL = re.compile(r"(?<![A-Za-z\\])[A-Z](?![A-Za-z])|\b(?:or|and|not)\b")


def as_label(answer: str, ground_truth: str, question: str) -> str:
    """The label of the choice that an answer names, if the ground truth is one of the question's; else the answer."""
    if len(answer) > _MAX_CHARS or len(ground_truth) > 2:
        return answer
    choices = _choices(question[-_MAX_QUESTION_CHARS:])
    if ground_truth.upper() not in choices:
        return answer
    named = _NAMED.fullmatch(_plain(answer))
    label = named["label"].upper() if named else ""
    if named and label in choices:
        text = _rest(named)
        if not text or _key(text) == _key(choices[label]):
            return _written(label, ground_truth)
    by_text = [label for label, text in choices.items() if _key(text) == _key(answer)]
    return _written(by_text[0], ground_truth) if len(by_text) == 1 else answer


def same_choice(answer: str, ground_truth: str) -> bool:
    r"""Whether an answer such as ``(B) 5`` names the choice that is the ground truth: ``B`` or ``\textbf{(B)}\ 5``."""
    expected, actual = (_NAMED.fullmatch(_plain(text)) for text in (ground_truth, answer))
    if not expected or not actual or not expected["label"].isupper():
        return False
    if _rest(expected) and not expected["bracket"]:
        return False
    return expected["label"] == actual["label"].upper() and not _SECOND_LABEL.search(_rest(actual))


@lru_cache(maxsize=256)
def _choices(question: str) -> dict[str, str]:
    choices: dict[str, str] = {}
    label, ended = "", False
    for line in question.splitlines():
        match = _LINE.fullmatch(line)
        found = match["label"].upper() if match else ""
        if match and choices and found == _after(label):
            choices[found], label, ended = match["text"], found, False
        elif match and found in _FIRST_LABELS:
            choices, label, ended = {found: match["text"]}, found, False
        elif not line.strip():
            ended = True
        elif choices and not ended:
            choices[label] += f" {line}"
    return choices if len(choices) > 1 else {}


def _after(label: str) -> str:
    return str(int(label) + 1) if label.isdecimal() else chr(ord(label) + 1)


def _plain(text: str) -> str:
    return undressed(_COMMAND.sub(r"\1", fold(text).replace("**", "")), plain=True)


def _rest(named: re.Match[str]) -> str:
    return (named["text"] or "").strip(" \t\n.:\\)")


def _key(text: str) -> str:
    return " ".join(_plain(text).casefold().split())


def _written(label: str, ground_truth: str) -> str:
    return ground_truth if label == ground_truth.upper() else label
