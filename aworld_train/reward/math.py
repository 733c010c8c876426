"""``math``: whether two answers are the same mathematics, such as ``1/2``, ``0.5`` and ``\\frac12``.

Plain numbers are compared exactly and at once; everything else is read as LaTeX by math-verify and compared by SymPy.
That can take for ever, so it runs in a worker process, whose limits on time and memory replace math-verify's own (they
are signals, which threads cannot use). Nothing is evaluated as Python. What cannot be read equals only the same text.

A unit or a percent sign that only one side has is left out, as is ``x =`` before a value; ``50%`` is 50 to someone who
asks for percent, and 0.5 otherwise. Decimal places beyond the sixth do not count where one side is not exact.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from aworld_train.reward.math_text import MathAnswer, as_latex, is_prose, quantity, same_words
from aworld_train.reward.scored import Score
from aworld_train.reward.scorers import register_scorer

_MAX_CHARS = 1000
_MAX_DIGITS = 64
_ROUNDING = 6  # decimal places, as in math-verify
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<decimal>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
    r"|(?:(?P<whole>[0-9]+) +)?(?P<above>[0-9]+) ?/ ?(?P<below>[0-9]+)"
    r"|(?P<mixed>[0-9]*)\\[dt]?frac(?:\{ *(?P<top>[0-9]+) *\}\{ *(?P<bottom>[0-9]+) *\}|(?P<t>[0-9])(?P<b>[0-9])))"
)


def _prepare() -> None:
    """Load what takes seconds to load."""
    _equal("x^2", "x^2")


@register_scorer("math", isolated=True, prepare=_prepare)
def math(answer: str, ground_truth: str) -> Score:
    """1 if both are the same mathematics, else 0."""
    if max(len(answer), len(ground_truth)) > _MAX_CHARS:
        return Score(0.0, steps=(f"longer than {_MAX_CHARS} characters: not compared",))
    given, wanted = quantity(answer), quantity(ground_truth)
    steps = [f"answer: {_shown(given)}", f"ground truth: {_shown(wanted)}"]
    if given.unit and wanted.unit and given.unit != wanted.unit:
        return Score(0.0, steps=(*steps, f"the units {given.unit!r} and {wanted.unit!r} differ"))
    right, how = _compare(given, wanted)
    return Score(float(right), steps=(*steps, how))


def _compare(given: MathAnswer, wanted: MathAnswer) -> tuple[bool, str]:
    """Whether they are equal, and how that was found out."""
    if same_words(given.text, wanted.text) and given.percent == wanted.percent:
        return True, "the same text"
    if is_prose(given.text) or is_prose(wanted.text):
        return False, "words, and not the same"
    values = plain_number(given.text), plain_number(wanted.text)
    one_percent = given.percent != wanted.percent
    if values[0] is not None and values[1] is not None:
        pairs = [(values[0], values[1])]
        if one_percent:
            pairs.append(
                (values[0] / (100 if given.percent else 1), values[1] / (100 if wanted.percent else 1))
            )
        if any(a == b for a, b in pairs):
            return True, "equal numbers"
        if all(abs(a - b) > Fraction(2, 10**_ROUNDING) for a, b in pairs) or all(
            value.denominator == 1 for pair in pairs for value in pair
        ):
            return False, "other numbers"
    latex = as_latex(given.text), as_latex(wanted.text)
    if _equal(*latex):
        return True, "equal by SymPy"
    if one_percent and _equal(_hundredth(latex[0], given.percent), _hundredth(latex[1], wanted.percent)):
        return True, "equal by SymPy, as percent"
    unread = [text for text in latex if not _parsed(text)]
    return (
        False,
        f"not readable as mathematics: {', '.join(map(repr, unread))}" if unread else "not equal by SymPy",
    )


def plain_number(text: str) -> Fraction | None:
    """The value of a number as people write it; None for anything else."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _MAX_DIGITS:
        return None
    part = found.groupdict()
    if part["decimal"]:
        value = Fraction(f"{part['decimal'].replace(',', '')}e{part['exponent'] or 0}")
    else:
        below = int(part["below"] or part["bottom"] or part["b"])
        if not below:
            return None
        above = int(part["above"] or part["top"] or part["t"])
        value = int(part["whole"] or part["mixed"] or 0) + Fraction(above, below)
    return -value if part["sign"] == "-" else value


def _hundredth(latex: str, percent: bool) -> str:
    return rf"\frac{{{latex}}}{{100}}" if percent else latex


def _equal(given: str, wanted: str) -> bool:
    from math_verify import verify

    # Its order matters: an assignment is unwrapped, an interval taken for an inequality, only on one side.
    return bool(_parsed(wanted) and _parsed(given)) and bool(
        verify(_parsed(wanted), _parsed(given), float_rounding=_ROUNDING, timeout_seconds=None)
    )


@lru_cache(maxsize=64)
def _parsed(latex: str) -> list[Any]:
    """What math-verify reads in it; empty if nothing."""
    import logging

    from math_verify import LatexExtractionConfig, parse

    # It warns once that there is no time limit: there is one, the worker's.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    if not latex.strip():
        return []
    return list(
        parse(f"${latex}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    )


def _shown(given: MathAnswer) -> str:
    dress = [f"unit {given.unit!r}"] if given.unit else []
    dress += ["percent"] if given.percent else []
    return f"{given.text!r}" + (f" ({', '.join(dress)})" if dress else "")
