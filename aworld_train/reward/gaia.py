"""The scorer ``gaia``: the rule of GAIA's leaderboard, corrected where that rule is plainly wrong.

GAIA's own rule (arXiv 2311.12983, and the scorer of its leaderboard): if the ground truth is a number, the answer is
read as one without ``$``, ``%`` and commas and must be equal; if it has a comma or semicolon, both are split there,
and each element must be equal as a number or as text in lower case without space; else both are compared in lower case
without space and punctuation. The differences:

- A hidden ground truth (``?``) matches nothing; GAIA's rule matches it with all punctuation.
- ``nan`` and numbers that no float can hold are texts; in GAIA's rule all such texts equal ``inf``.
- Commas in the positions of thousands separators (``1,234``) are such, also in the ground truth and in elements. A
  ground truth that could be a list as well (``100,200``) may be matched as either. ``1,23`` is not 123.
- Spaces and apostrophes separate thousands too; quotes, emphasis and TeX around a number are not part of it.
- Currency signs, ``%`` and a unit that TeX sets as text (``42\\,\\text{km}``) may be missing, but not differ.
- ``3.5 km`` is not ``35 km``, ``1/2`` not ``12``, ``-5 °C`` not ``5 °C``, ``C++`` not ``C``.
- Characters are normalized; a full stop at the end of a list does not belong to its last element.
"""

import math
import re
from typing import NamedTuple

from aworld_train.reward.numbers import CURRENCIES, read_number, same_unit
from aworld_train.reward.score_types import Score
from aworld_train.reward.text_normalization import bare, fold, is_hidden

MAX_CHARS = 4000
"""GAIA's answers are short; where one side is longer, both must be identical."""

_MAX_NUMBER_CHARS = 100
_EXACT_DIGITS = 15
"""Digits that every float can hold; longer whole numbers are compared as integers."""

# GAIA's rule splits a list at each separator, but a comma between a digit and exactly three digits separates thousands.
_SEPARATORS = re.compile(r"[,;]")
_LIST_SEPARATORS = re.compile(r";|,(?!(?<=[0-9],)[0-9]{3}(?![0-9]))")
_THOUSANDS = re.compile(r"[0-9],[0-9]{3}(?![0-9])")

# Digits with the points and slashes between them, and the sign and the point that a text may begin with.
_FIGURE = re.compile(r"(?:\A-?\.?)?[0-9]+(?:[./][0-9]+)*")
_SIGNS = re.compile(r"[./+#-]")
_POINTS = re.compile(r"[./]")
_LAST_SIGNS = re.compile(r"(?<=\w)[+#]+\Z")

_BY_NUMBER, _BY_LIST, _BY_TEXT = (
    tuple(
        Score(float(right), steps=(f"The ground truth is {kind}: compared as such.",))
        for right in (False, True)
    )
    for kind in ("a number", "a list", "a text")
)
_TOO_LONG = tuple(
    Score(float(right), steps=(f"More than {MAX_CHARS} characters: compared to the letter.",))
    for right in (False, True)
)
_SAME = Score(1.0, steps=("The answer is the ground truth to the letter.",))
_HIDDEN = Score(0.0, steps=("The ground truth is hidden: nothing is right.",))


def gaia(answer: str, ground_truth: str) -> Score:
    if len(answer) > MAX_CHARS or len(ground_truth) > MAX_CHARS:
        return _TOO_LONG[answer == ground_truth]
    if answer == ground_truth:
        return _HIDDEN if is_hidden(ground_truth) else _SAME
    answer, truth = fold(answer), fold(ground_truth)
    listed = "," in truth or ";" in truth
    expected = _read(truth) if not listed or _THOUSANDS.search(truth) else None
    if expected is not None:
        actual = _read(answer)
        right = actual is not None and _equal(actual, expected)
        return _BY_NUMBER[right or (listed and _is_list(answer, truth))]
    if listed:
        right = _is_list(answer, truth)
        return _HIDDEN if right and is_hidden(truth) else _BY_LIST[right]
    bare_truth = bare(truth)
    if not bare_truth:
        return _HIDDEN
    return _BY_TEXT[bare(answer) == bare_truth and _signs_agree(answer, truth)]


class _Float(NamedTuple):
    """A number as GAIA's rule compares it, and as an integer where it has more digits than a float holds."""

    value: float
    unit: str = ""
    whole: int | None = None


def _read(text: str) -> _Float | None:
    if text[:1].isalpha() or len(text) > _MAX_NUMBER_CHARS:
        return None
    unit = ""
    if text[:1] == "$":  # what is common needs no reader
        text, unit = text[1:], CURRENCIES["$"]
    try:
        value = float(text)
    except ValueError:
        text = f"${text}" if unit else text
        number = read_number(text, plain=True)
        if number is None:
            return None
        is_long = number.value.denominator == 1 and abs(number.value) >= 10**_EXACT_DIGITS
        return _Float(float(number.value), number.unit, int(number.value) if is_long else None)
    if not math.isfinite(value):
        return None
    if len(text) > _EXACT_DIGITS and (digits := text.strip().removesuffix(".")).removeprefix("-").isdecimal():
        return _Float(value, unit, int(digits))
    return _Float(value, unit)


def _equal(one: _Float, other: _Float) -> bool:
    exact = one.whole is not None and other.whole is not None
    return same_unit(one.unit, other.unit) and (
        one.whole == other.whole if exact else one.value == other.value
    )


def _is_list(answer: str, truth: str) -> bool:
    answer, truth = _without_full_stop(answer), _without_full_stop(truth)
    if _is_list_split_at(_SEPARATORS, answer, truth):
        return True
    if not (_THOUSANDS.search(truth) or _THOUSANDS.search(answer)):
        return False
    if _LIST_SEPARATORS.search(truth):
        return _is_list_split_at(_LIST_SEPARATORS, answer, truth)
    # "Room 1,234" is not a list, and "1,234" was compared as a number.
    return _read(truth) is None and bare(answer) == bare(truth) and _signs_agree(answer, truth)


def _is_list_split_at(separators: re.Pattern[str], answer: str, truth: str) -> bool:
    parts, elements = separators.split(answer), separators.split(truth)
    return len(parts) == len(elements) and all(map(_is_element, parts, elements))


def _is_element(part: str, element: str) -> bool:
    part, element = part.strip(), element.strip()
    if part == element:
        return True
    expected = _read(element)
    if expected is None:
        return "".join(part.split()).casefold() == "".join(element.split()).casefold()
    actual = _read(part)
    return actual is not None and _equal(actual, expected)


def _signs_agree(answer: str, truth: str) -> bool:
    """Whether texts that are equal without punctuation also agree in the punctuation that changes the meaning."""
    if not (_SIGNS.search(answer) or _SIGNS.search(truth)):
        return True
    answer, truth = _without_full_stop(answer.strip()), _without_full_stop(truth.strip())
    actual, expected = (_FIGURE.findall(text.replace(",", "")) for text in (answer, truth))
    if len(actual) == len(expected) and not all(map(_figures_agree, actual, expected)):
        return False
    return bool(_LAST_SIGNS.findall(answer) == _LAST_SIGNS.findall(truth))


def _figures_agree(actual: str, expected: str) -> bool:
    """Whether two figures of the same digits agree: not if only one has a sign, or only one a single point or slash."""
    if actual.startswith("-") != expected.startswith("-"):
        return False
    return {len(_POINTS.findall(figure)) for figure in (actual, expected)} != {0, 1}


def _without_full_stop(text: str) -> str:
    return text.rstrip().removesuffix(".")
