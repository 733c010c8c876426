"""The scorer ``number``: whether the answer is the same number as the ground truth; a ground truth that is no number is
compared as text.

Arithmetic is exact, on fractions, so a rounded answer is right within a stated tolerance and no other answer is.
"""

import math
import re
from fractions import Fraction

from aworld_train.reward.folding import is_hidden
from aworld_train.reward.scored import Score, ScoringContext

MAX_NUMBER_CHARS = 64
RELATIVE_TOLERANCE = Fraction(1, 10**4)
MAX_TOLERANCE = Fraction(5, 10**3)  # half a cent: a large amount must still be right to the cent
FLOAT_NOISE = Fraction(1, 10**9)
MAX_TEXT_CHARS = 10_000
"""Of a ground truth that is no number; a longer answer must be identical."""

_PREFIX = re.compile(r"([+-]?)\s*[$€£]?\s*([+-]?)\s*")
_DECIMAL = re.compile(
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
)
_FRACTION = re.compile(r"([0-9]+)\s*/\s*([0-9]+)")


def number(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """Compare by `numeric_match` where the ground truth is a number, else as text without case and spacing.

    In a row whose ``extra_info`` holds an ``expression`` a fraction is no answer: ``1/3`` to "What is 1/3?" only
    repeats the question.
    """
    expected = _read(ground_truth)
    if expected is None:
        right = not is_hidden(ground_truth) and _plain(answer) == _plain(ground_truth)
        return Score(float(right), steps=("The ground truth is no number: compared as text.",))
    actual = _read(answer, fractions=not context.info.get("expression"))
    if actual is None:
        return Score(0.0, steps=(f"The ground truth is the number {expected}, the answer is no number.",))
    right = _same(actual, expected)
    return Score(float(right), steps=(f"The ground truth is the number {expected}, the answer is {actual}.",))


def numeric_match(answer: str, truth: str) -> bool:
    """Whether two texts are the same number.

    ``$``, thousands commas, a percent sign and a full stop at the end are ignored. An integer must match exactly
    except for floating-point noise; any other number must match within a relative 1e-4, and never differ by more
    than half a cent (0.005). A fraction counts in lowest terms (``1/2``), so that ``48/2`` is not yet 24. Anything
    that is no single number, such as ``nan``, ``1e999`` or ``12 or 13``, matches nothing.
    """
    actual, expected = _read(answer), _read(truth)
    return actual is not None and expected is not None and _same(actual, expected)


def _same(actual: Fraction, expected: Fraction) -> bool:
    if expected.denominator == 1:
        tolerance = FLOAT_NOISE * max(Fraction(1), abs(expected)) if actual.denominator != 1 else Fraction(0)
    else:
        tolerance = min(RELATIVE_TOLERANCE * abs(expected), MAX_TOLERANCE)
    return abs(actual - expected) <= tolerance


def _read(text: str, *, fractions: bool = True) -> Fraction | None:
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS:
        return None
    text = text.replace("−", "-").removesuffix(".").removesuffix("%").rstrip()
    prefix = _PREFIX.match(text)
    if prefix is None or (prefix[1] and prefix[2]):
        return None
    body = text[prefix.end() :]
    if _DECIMAL.fullmatch(body):
        value = Fraction(body.replace(",", ""))
    elif fractions and (parts := _FRACTION.fullmatch(body)):
        above, below = int(parts[1]), int(parts[2])
        if below < 2 or math.gcd(above, below) != 1:
            return None
        value = Fraction(above, below)
    else:
        return None
    return -value if "-" in prefix.groups() else value


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()) if len(text) <= MAX_TEXT_CHARS else text
