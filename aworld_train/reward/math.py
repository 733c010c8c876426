"""``math``: whether two answers are the same mathematics, such as ``1/2``, ``0.5`` and ``\\frac12``.

Plain numbers are compared exactly and at once; everything else is read as LaTeX by math-verify and compared by SymPy.
That may never end, so it runs in a worker process, and what is certain to take too long is refused before
(`math_size`). Nothing is evaluated as Python. A text that cannot be parsed equals only the same text.

A unit or a percent sign that only one side has is ignored, as is ``x =`` before a value; ``50%`` equals both 50 and
0.5. Plain numbers are equal up to a millionth of their size where one of them is not an integer; only 0 equals 0.
"""

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from aworld_train.reward.choices import same_choice
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
from aworld_train.reward.numbers import read_number
from aworld_train.reward.score_types import Score, TooHard
from aworld_train.reward.scorers import register_scorer

_MAX_CHARS = 1000
_TOLERANCE = Fraction(1, 10**6)
_SET, _TUPLE = "{", "("
_EQUALS = re.compile(r"(?<![<>!\\])=")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_JOINT = re.compile(r",?\s*(?:\\text\s*\{\s*,?\s*)?\b(or|and)\b(?:\s*\})?\s*")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|lt|gt|ne)(?:q|slant|qslant)?(?![a-z])")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
# A date, a version or an address of numbers, a telephone number, a number in another base.
_NAME_OF_DIGITS = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{4}|[0-9]+(?:\.[0-9]+){2,}"
    r"|(?:[0-9]{3}-)?[0-9]{3}-[0-9]{4}|0[xob][0-9a-f]+",
    re.IGNORECASE,
)
_PRIME = re.compile(r"'|′|\^\s*\{?\s*(?:\\prime\s*)+\}?")
_FUNCTION_PRIME = re.compile(r"[A-Za-z]\s*(?:'|′|\^\s*\{?\s*\\prime)")


def _prepare() -> None:
    _equal("x^2", "x^2")


@register_scorer("math", isolated=True, prepare=_prepare, max_processor_seconds=3.0)
def math(answer: str, ground_truth: str) -> Score:
    """1 if both are the same mathematics, else 0; no score if SymPy cannot read the ground truth in time."""
    if max(len(answer), len(ground_truth)) > _MAX_CHARS:
        return Score(0.0, steps=(f"longer than {_MAX_CHARS} characters: not compared",))
    if same_choice(answer, ground_truth):
        return Score(1.0, steps=("equal choices",))
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
    if ground_truth_size is None and expected.number is None and not is_prose(expected.text):
        # Before the answer: one that cannot be read in time then fails with every answer, and none is to blame.
        _parsed(as_latex(expected.text))
    times = TIME.fullmatch(actual.text), TIME.fullmatch(expected.text)
    if times[0] and times[1]:
        same = _time(times[0]) == _time(times[1])
        return same, "equal times of day" if same else "other times of day"
    if kind := _other_kind(actual.text, expected.text) or _other_notation(actual.text, expected.text):
        return False, kind
    if same_words(actual.text, expected.text) and actual.percent == expected.percent:
        return True, "the same text"
    if is_prose(actual.text) or is_prose(expected.text):
        return False, "words, and not the same"
    actual, expected = _with_decimal_comma(actual, expected)
    one_percent = actual.percent != expected.percent
    if actual.number is not None and expected.number is not None:
        hundredths = [one_percent and each.percent for each in (actual, expected)]
        same = _equal_numbers(actual, expected) or (
            one_percent and _equal_numbers(actual, expected, *hundredths)
        )
        return same, "equal numbers" if same else "other numbers"
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
    return one.percent and bool(other.unit)


def _unit(answer: MathAnswer) -> str:
    return "%" if answer.percent else answer.unit


def _converted(answer: MathAnswer, factor: Fraction) -> MathAnswer:
    if factor == 1:
        return answer
    if (number := answer.number) is not None:
        number = number._replace(value=number.value * factor)
        return replace(answer, text=str(number.value), number=number)
    return replace(answer, text=rf"\frac{{{factor.numerator}}}{{{factor.denominator}}} \cdot ({answer.text})")


def _equal_numbers(actual: MathAnswer, expected: MathAnswer, *hundredths: bool) -> bool:
    assert actual.number is not None and expected.number is not None
    numbers = actual.number, expected.number
    one, other = (
        each.value / 100 if hundredth else each.value
        for each, hundredth in zip(numbers, hundredths or (False, False), strict=True)
    )
    if one == other:
        return True
    if actual.modulus and expected.modulus:
        return bool(one % expected.modulus == other % expected.modulus)
    if actual.modulus or expected.modulus:  # beside a plain number, which may be the residue itself
        return bool(one % actual.modulus == other if actual.modulus else one == other % expected.modulus)
    exact = one.denominator == other.denominator == 1 or not any(each.decimal for each in numbers)
    return not exact and 0 < abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


def _other_kind(actual: str, expected: str) -> str | None:
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
    inner = text.strip().removeprefix(r"\left").strip().removeprefix("\\")
    if inner.startswith("begin{"):
        return _TUPLE
    depth = 0
    for at, character in enumerate(inner):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:  # what the first bracket opens must be all
            inner = inner if at == len(inner) - 1 else ""
            break
    if "," not in inner:
        return None
    return _SET if inner.startswith("{") else _TUPLE if inner.startswith(("(", "[")) else None


def _with_decimal_comma(actual: MathAnswer, expected: MathAnswer) -> tuple[MathAnswer, MathAnswer]:
    if expected.number is None or not expected.number.decimal or not _DECIMAL_COMMA.fullmatch(actual.text):
        return actual, expected
    number = read_number(actual.text.replace(",", "."))
    return replace(actual, number=number), expected


def _hundredth(latex: str, percent: bool) -> str:
    return rf"\frac{{{latex}}}{{100}}" if percent else latex


def _equal(actual: str, expected: str) -> bool:
    from aworld_train.reward.math_compare import equal

    try:
        return any(equal(one, other) for one in _parsed(expected) for other in _parsed(actual))
    # Of what SymPy cannot do.
    except (NotImplementedError, TypeError, ValueError, AttributeError, ArithmeticError):
        return False


@lru_cache(maxsize=64)
def _parsed(latex: str) -> list[Any]:
    import logging

    from math_verify import LatexExtractionConfig, parse

    # It warns that it has no time limit; the worker process has one.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    if not latex.strip():
        return []
    if len(parts := _JOINT.split(latex)) > 1 and all(map(_INEQUALITY.search, parts[::2])):
        return _joined([_parsed(part) for part in parts[::2]], parts[1::2])
    return list(
        parse(f"${latex}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    )


def _joined(parsed: list[list[Any]], joints: list[str]) -> list[Any]:
    """The numbers for which one of several inequalities holds, or all of them; nothing if they name no such set."""
    from sympy import Intersection, Union

    from aworld_train.reward.math_compare import region

    regions = [region(parts[0]) if parts else None for parts in parsed]
    if None in regions or len(set(joints)) > 1:
        return []
    return [Union(*regions) if joints[0] == "or" else Intersection(*regions)]


def _describe(actual: MathAnswer) -> str:
    details = [f"unit {actual.unit!r}"] if actual.unit else []
    details += ["percent"] if actual.percent else []
    return f"{actual.text!r}" + (f" ({', '.join(details)})" if details else "")


def _other_notation(actual: str, expected: str) -> str | None:
    """Why one of two texts is not arithmetic: as such 2024-01-02 is 2021, and math-verify drops the prime of f'(x)."""
    actual, expected = actual.strip(), expected.strip()
    if actual.casefold() == expected.casefold():
        return None
    if _NAME_OF_DIGITS.fullmatch(actual) or _NAME_OF_DIGITS.fullmatch(expected):
        return "a date, an address or another name of digits, and not the same"
    actual_side, expected_side = _without_name(actual, expected), _without_name(expected, actual)
    primes = _primes(actual_side), _primes(expected_side)
    if primes[0] != primes[1] and (
        all(primes) or any(map(_FUNCTION_PRIME.search, (actual_side, expected_side)))
    ):
        return "other derivatives, or other units"
    return None


def _without_name(text: str, other: str) -> str:
    """What follows the equals sign, where the other text has none: ``2x`` of ``f'(x) = 2x``."""
    return text.rpartition("=")[2] if "=" in text and "=" not in other else text


def _primes(text: str) -> int:
    return sum(max(1, match[0].count("prime")) for match in _PRIME.finditer(text))
