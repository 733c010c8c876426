"""The scorer ``number``: whether the answer is the same number as the ground truth, exactly or within a stated
tolerance.
"""

from fractions import Fraction

from aworld_train.reward.numbers import Quantity, read_number, same_unit
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.text_normalization import is_hidden

RELATIVE_TOLERANCE = Fraction(1, 10**4)
MAX_TOLERANCE = Fraction(5, 10**3)  # half a cent: a large amount must still be right to the cent
FLOAT_NOISE = Fraction(1, 10**9)
MAX_TEXT_CHARS = 10_000


def number(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """Compare by `numeric_match` where the ground truth is a number, else as text without case and spacing.

    In a row with an ``expression`` a fraction or a power is not an answer: ``1/3`` to "What is 1/3?" repeats it.
    """
    expected = _read(ground_truth)
    if expected is None:
        right = not is_hidden(ground_truth) and _plain(answer) == _plain(ground_truth)
        return Score(float(right), steps=("The ground truth is not a number: compared as text.",))
    actual = _read(answer, expected)
    if actual is None or (actual.computed and context.info.get("expression")):
        return Score(
            0.0, steps=(f"The ground truth is the number {expected.value}, the answer is not a number.",)
        )
    right = _same(actual, expected)
    return Score(
        float(right),
        steps=(f"The ground truth is the number {expected.value}, the answer is {actual.value}.",),
    )


def numeric_match(answer: str, truth: str) -> bool:
    """Whether two texts are the same number.

    An integer must match exactly except for floating-point noise; any other number within a relative 1e-4, and never
    differ by more than half a cent (0.005). A currency or a percent sign may be missing, but not be another. A fraction
    counts in lowest terms (``1/2``), so that ``48/2`` is not yet 24. ``nan``, ``1e999`` or ``12 or 13`` match nothing.
    """
    expected = _read(truth)
    actual = _read(answer, expected) if expected else None
    return actual is not None and expected is not None and _same(actual, expected)


def _same(actual: Quantity, expected: Quantity) -> bool:
    if not same_unit(actual.unit, expected.unit):
        return False
    if expected.value.denominator == 1:
        noise = FLOAT_NOISE * max(Fraction(1), abs(expected.value))
        tolerance = noise if actual.value.denominator != 1 else Fraction(0)
    else:
        tolerance = min(RELATIVE_TOLERANCE * abs(expected.value), MAX_TOLERANCE)
    return abs(actual.value - expected.value) <= tolerance


def _read(text: str, expected: Quantity | None = None) -> Quantity | None:
    """A number; ``4,2`` is 4.2 as a ground truth, and as an answer where the ground truth is not a whole number."""
    number = read_number(text, decimal_comma=expected is None or expected.value.denominator != 1)
    return number if number is not None and number.reduced else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()) if len(text) <= MAX_TEXT_CHARS else text
