"""What SymPy is not asked to compute, since it would never end: towers of powers, large factorials, deep nesting,
powers of sums that have many terms, long unions of sets. The scorer's limit on processor time ends what else takes
long.
"""

import math
import re

from aworld_train.reward.math_shapes import split_outside_brackets

MAX_DEPTH = 12
MAX_ELEMENTS = 100
MAX_EXPONENT = 10_000
MAX_EXPANDED = 200  # the exponent of a sum, which SymPy expands
MAX_DEGREE = 300  # of all powers of sums together
MAX_TERMS = 5_000  # of a polynomial of that degree in their variables
MAX_MATRIX_EXPONENT = 20
MAX_HEIGHT = 8  # exponents in an exponent
MAX_SETS = 20
MAX_FACTORIAL = 1_000
_HUGE = 10**12
_MAX_DIGITS = 15
_OPENING, _CLOSING = "([{", ")]}"
_NUMBER = re.compile(r"(?P<digits>[0-9]+)(?P<factorial>\s*!)?")
_DENOMINATOR = re.compile(r"\\[dt]?frac\s*(\{[^{}]*\}|[0-9])\s*(?:\{[^{}]*\}|[0-9])|/\s*[0-9]+")
_FACTORIAL = re.compile(r"(?P<operand>[0-9]+|[)\]}])\s*(?P<signs>!+)(?!=)")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*\{(?P<number>[^{}]*)\}")
_GAMMA = re.compile(r"\\Gamma\s*(?:\\left)?\s*[({](?P<number>[^(){}]*)")
_EULER = re.compile(r"(?<![A-Za-z\\])e(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_SET_OPERATION = re.compile(r"\\(?:cup|cap|setminus)(?![A-Za-z])|[∪∩]")


def too_large(latex: str) -> str | None:
    """Why SymPy is not asked about a text in LaTeX; None if it may be."""
    if (depth := _depth(latex)) > MAX_DEPTH:
        return f"has brackets {depth} deep; {MAX_DEPTH} are compared"
    if (elements := latex.count(",") + 1) > MAX_ELEMENTS:
        return f"has {elements} elements; {MAX_ELEMENTS} are compared"
    if (sets := len(_SET_OPERATION.findall(latex)) + 1) > MAX_SETS:
        return f"has {sets} sets; {MAX_SETS} are compared"
    degree, variables = 0, set[str]()
    for base, exponent in _powers(latex):
        expanded = _is_expanded(base)
        limit = MAX_EXPANDED if expanded else MAX_MATRIX_EXPONENT if "matrix" in base else MAX_EXPONENT
        if exponent.count("^") >= MAX_HEIGHT or (value := _value(exponent)) > limit:
            return f"has the exponent {exponent[:40]}; exponents up to {limit} are computed"
        if expanded:
            degree += value
            variables |= set(re.findall(r"[A-Za-z]", _COMMAND.sub("", base)))
    if degree > MAX_DEGREE or math.comb(degree + len(variables), len(variables)) > MAX_TERMS:
        return (
            f"has powers of sums of the degree {degree} in {len(variables)} variables, which are not expanded"
        )
    for operand in _factorial_operands(latex):
        if "!" in operand or _value(operand) > MAX_FACTORIAL:
            return f"has a factorial of {operand[:40]}; those of numbers up to {MAX_FACTORIAL} are computed"
    return None


def _is_expanded(base: str) -> bool:
    return len(split_outside_brackets(base.lstrip("+-"), "+-")) > 1 and bool(re.search(r"[A-Za-z]", base))


def _depth(latex: str) -> int:
    depth = deepest = 0
    for sign in latex:
        depth += (sign in _OPENING) - (sign in _CLOSING)
        deepest = max(deepest, depth)
    return deepest


def _powers(latex: str) -> list[tuple[str, str]]:
    """The base, empty if it is not in brackets, and the exponent of each ``^``; an exponent has its own exponents."""
    found = []
    for match in re.finditer(r"\s*\^\s*", latex):
        closes = match.start() > 0 and latex[match.start() - 1] in _CLOSING
        base = _bracketed_before(latex, match.start() - 1) if closes else ""
        found.append((base, _exponent(latex[match.end() :])))
    return found


def _factorial_operands(latex: str) -> list[str]:
    operands = [match["number"] for pattern in (_BINOMIAL, _GAMMA) for match in pattern.finditer(latex)]
    for match in _FACTORIAL.finditer(latex):
        operand = match["operand"]
        if operand in _CLOSING:
            operand = _bracketed_before(latex, match.start("operand"))
        operands.append(operand + match["signs"][2:])  # 5!! has a meaning of its own
    return operands


def _exponent(text: str) -> str:
    """The exponent that a text begins with: a sign or what is in braces, and what follows another ``^``."""
    inside, length = text[:1], 1
    if text.startswith("{"):
        inside = _braced(text)
        length = len(inside) + 2
    above = re.match(r"\s*\^\s*", text[length:])
    return inside if above is None else f"{inside}^{_exponent(text[length + above.end() :])}"


def _braced(text: str) -> str:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return text[1:at]
    return text[1:]


def _bracketed_before(latex: str, end: int) -> str:
    depth = 0
    for at in range(end, -1, -1):
        depth += (latex[at] in _CLOSING) - (latex[at] in _OPENING)
        if depth == 0:
            return latex[at + 1 : end]
    return latex[:end]


def _value(text: str) -> int:
    """An upper bound of what the numbers in a text make together; at most `_HUGE`, which stands for all above it."""
    terms = split_outside_brackets(_DENOMINATOR.sub(r"\1", _EULER.sub("3", text)), "+-")
    return min(sum(map(_product, terms)), _HUGE)


def _product(term: str) -> int:
    base, caret, above = term.partition("^")
    value = 1
    for number in _NUMBER.finditer(base):
        value = min(value * max(_operand(number), 1), _HUGE)
    if not caret or value < 2:
        return value
    return _HUGE if (exponent := _value(above)) > _HUGE.bit_length() else min(value**exponent, _HUGE)


def _operand(number: re.Match[str]) -> int:
    value = int(number["digits"][:_MAX_DIGITS])
    return math.factorial(min(value, _MAX_DIGITS)) if number["factorial"] else value
