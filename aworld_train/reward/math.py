"""``math``: whether two answers are the same mathematics, such as ``1/2``, ``0.5`` and ``\\frac12``.

Plain numbers are compared exactly and at once; everything else is read as LaTeX by math-verify and compared by SymPy.
That may never end, so it runs in a worker process, whose limits on time and memory replace math-verify's own (they use
signals, which threads cannot), and what is certain to take too long is refused before (`math_size`). Nothing is
evaluated as Python. A text that cannot be parsed equals only the same text.

A unit or a percent sign that only one side has is ignored, as is ``x =`` before a value; ``50%`` equals both 50 and
0.5. Units of one kind are converted (``math_units``). Plain numbers are equal up to a millionth of their size where
one of them is no integer; only 0 equals 0.
"""

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from aworld_train.reward.math_kinds import other_kind
from aworld_train.reward.math_size import too_large
from aworld_train.reward.math_text import (
    TIME,
    MathAnswer,
    as_latex,
    is_prose,
    quantity,
    same_words,
    without_name,
)
from aworld_train.reward.math_units import conversion
from aworld_train.reward.scored import Score, TooHard
from aworld_train.reward.scorers import register_scorer

_MAX_CHARS = 1000
_MAX_DIGITS = 64
_ROUNDING = 6  # decimal places, as in math-verify
_TOLERANCE = Fraction(1, 10**6)
_SET, _TUPLE = "{", "("
_EQUALS = re.compile(r"(?<![<>!\\])=")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<decimal>(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
    r"|(?P<before>[0-9]*\.[0-9]*)\\(?:overline|bar|dot)\{?(?P<repeated>[0-9]+)\}?"
    r"|(?:(?P<whole>[0-9]+) +)?(?P<above>[0-9]+)\.? ?/ ?(?P<below>[0-9]+)\.?"
    r"|(?P<mixed>[0-9]*)\\[dt]?frac(?:\{ *(?P<top>[0-9]+) *\}\{ *(?P<bottom>[0-9]+) *\}|(?P<t>[0-9])(?P<b>[0-9])))"
)


def _prepare() -> None:
    """Load SymPy and math-verify, which takes seconds."""
    _equal("x^2", "x^2")


@register_scorer("math", isolated=True, prepare=_prepare, max_processor_seconds=3.0)
def math(answer: str, ground_truth: str) -> Score:
    """1 if both are the same mathematics, else 0; no score if SymPy cannot read the ground truth in time.

    Raises:
        TooHard: The answer is too large to be computed.
    """
    if max(len(answer), len(ground_truth)) > _MAX_CHARS:
        return Score(0.0, steps=(f"longer than {_MAX_CHARS} characters: not compared",))
    actual, expected = quantity(answer), quantity(ground_truth)
    actual, expected = without_name(actual, expected), without_name(expected, actual)
    steps = [f"answer: {_describe(actual)}", f"ground truth: {_describe(expected)}"]
    factor = conversion(actual.unit, expected.unit)
    if factor is None or _percent_of(actual, expected) or _percent_of(expected, actual):
        return Score(0.0, steps=(*steps, f"the units {_unit(actual)!r} and {_unit(expected)!r} differ"))
    right, reason = _compare(_converted(actual, factor), expected)
    return Score(None if right is None else float(right), steps=(*steps, reason))


def _compare(actual: MathAnswer, expected: MathAnswer) -> tuple[bool | None, str]:
    """Whether they are equal, and the reason; None if the ground truth is too large to be compared."""
    ground_truth_size = too_large(as_latex(expected.text))
    if ground_truth_size is None and plain_number(expected.text) is None and not is_prose(expected.text):
        # Before the answer: one that cannot be read in time then fails with every answer, and none is to blame.
        _parsed(as_latex(expected.text))
    times = TIME.fullmatch(actual.text), TIME.fullmatch(expected.text)
    if times[0] and times[1]:
        same = _time(times[0]) == _time(times[1])
        return same, "equal times of day" if same else "other times of day"
    if kind := _other_kind(actual.text, expected.text) or other_kind(actual.text, expected.text):
        return False, kind
    if same_words(actual.text, expected.text) and actual.percent == expected.percent:
        return True, "the same text"
    if is_prose(actual.text) or is_prose(expected.text):
        return False, "words, and not the same"
    values = _plain_numbers(actual.text, expected.text)
    one_percent = actual.percent != expected.percent
    if values[0] is not None and values[1] is not None:
        pairs = [(values[0], values[1])]
        if one_percent:
            pairs.append(
                (values[0] / (100 if actual.percent else 1), values[1] / (100 if expected.percent else 1))
            )
        equal = any(_equal_numbers(a, b) for a, b in pairs)
        return equal, "equal numbers" if equal else "other numbers"
    latex = as_latex(actual.text), as_latex(expected.text)
    if ground_truth_size:
        return None, f"the ground truth {ground_truth_size}"
    if answer_size := too_large(latex[0]):
        raise TooHard(f"the answer {answer_size}")
    if _equal(*latex):
        return True, "equal by SymPy"
    if one_percent and _equal(_hundredth(latex[0], actual.percent), _hundredth(latex[1], expected.percent)):
        return True, "equal by SymPy, as percent"
    unparsed = [text for text in latex if not _parsed(text)]
    return (
        False,
        f"not readable as mathematics: {', '.join(map(repr, unparsed))}"
        if unparsed
        else "not equal by SymPy",
    )


def _percent_of(one: MathAnswer, other: MathAnswer) -> bool:
    """Whether one is in percent and the other has a unit."""
    return one.percent and bool(other.unit)


def _unit(answer: MathAnswer) -> str:
    return "%" if answer.percent else answer.unit


def _converted(answer: MathAnswer, factor: Fraction) -> MathAnswer:
    if factor == 1:
        return answer
    value = plain_number(answer.text)
    if value is not None:
        return replace(answer, text=str(value * factor))
    return replace(answer, text=rf"\frac{{{factor.numerator}}}{{{factor.denominator}}} \cdot ({answer.text})")


def _equal_numbers(one: Fraction, other: Fraction) -> bool:
    if one == other:
        return True
    exact = one.denominator == 1 and other.denominator == 1
    return not exact and 0 < abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


def _other_kind(actual: str, expected: str) -> str | None:
    """Why two texts cannot be the same mathematics although math-verify may read them alike."""
    kinds = _collection(actual), _collection(expected)
    if _SET in kinds and None not in kinds and kinds[0] != kinds[1]:
        return "a set and a list in order"
    if ("=" in actual) != ("=" in expected):
        *left, _ = _EQUALS.split(actual if "=" in actual else expected)
        if left and not any(re.search("[A-Za-z|]", _COMMAND.sub("", part)) for part in left):
            return "an equation of numbers and a value"
    return None


def _time(match: re.Match[str]) -> tuple[int, str, str, str]:
    return int(match["hours"]), match["minutes"], match["seconds"] or ":00", (match["half"] or "").lower()


def _collection(text: str) -> str | None:
    """The bracket around elements: of a set, or of what has an order; None for anything else."""
    inner = text.strip().removeprefix(r"\left").strip()
    if "," not in inner or not inner.endswith((")", "}", "]")):
        return None
    if inner.startswith((r"\{", "{")):
        return _SET
    return _TUPLE if inner.startswith(("(", "[")) else None


def _plain_numbers(actual: str, expected: str) -> tuple[Fraction | None, Fraction | None]:
    """Both as plain numbers.

    ``1,22`` may be a number or two: it is 1.22 as an answer where the ground truth is a number with a point, and where
    it begins with 0. ``1,220`` is 1220 where that is the ground truth.
    """
    if expected.lstrip("+-").startswith("0,") and _DECIMAL_COMMA.fullmatch(expected):
        expected = expected.replace(",", ".")
    expected_number, number = plain_number(expected), plain_number(actual)
    may_be_decimal = _DECIMAL_COMMA.fullmatch(actual) and "." in expected and "," not in expected
    if may_be_decimal and number != expected_number:
        number = plain_number(actual.replace(",", "."))
    return number, expected_number


def plain_number(text: str) -> Fraction | None:
    """The value of a number as people write it; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > _MAX_DIGITS:
        return None
    part = match.groupdict()
    if part["decimal"]:
        value = Fraction(f"{part['decimal'].replace(',', '')}e{part['exponent'] or 0}")
    elif part["repeated"]:
        value = _repeating(part["before"], part["repeated"])
    else:
        below = int(part["below"] or part["bottom"] or part["b"])
        if not below:
            return None
        above = int(part["above"] or part["top"] or part["t"])
        value = int(part["whole"] or part["mixed"] or 0) + Fraction(above, below)
    return -value if part["sign"] == "-" else value


def _repeating(before: str, repeated: str) -> Fraction:
    """The value of ``0.1`` with 6 repeated after it."""
    scale = Fraction(1, 10 ** len(before.partition(".")[2]))
    nines = 10 ** len(repeated) - 1
    return Fraction(f"0{before}0" if before.endswith(".") else f"0{before}") + scale * Fraction(
        int(repeated), nines
    )


def _hundredth(latex: str, percent: bool) -> str:
    return rf"\frac{{{latex}}}{{100}}" if percent else latex


def _equal(actual: str, expected: str) -> bool:
    from math_verify import verify

    # The order matters: math-verify unwraps assignments, and reads intervals as inequalities, on one side only.
    return bool(_parsed(expected) and _parsed(actual)) and bool(
        verify(_parsed(expected), _parsed(actual), float_rounding=_ROUNDING, timeout_seconds=None)
    )


@lru_cache(maxsize=64)
def _parsed(latex: str) -> list[Any]:
    """What math-verify parses; empty if nothing."""
    import logging

    from math_verify import LatexExtractionConfig, parse

    # It warns that it has no time limit; the worker process has one.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    if not latex.strip():
        return []
    return list(
        parse(f"${latex}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    )


def _describe(actual: MathAnswer) -> str:
    details = [f"unit {actual.unit!r}"] if actual.unit else []
    details += ["percent"] if actual.percent else []
    return f"{actual.text!r}" + (f" ({', '.join(details)})" if details else "")
