"""Exact arithmetic on text: a tokenizer, a recursive-descent parser, and fractions all the way.

Nothing is ever handed to Python's own evaluator, and every intermediate value is bounded, so no expression
can run code, hang, or fill memory. Operators and their precedence are Python's: ``**`` binds tighter than a
sign on its left and groups to the right; ``//`` and ``%`` round towards minus infinity.
"""

import re
from fractions import Fraction

MAX_LENGTH = 1000
"""Characters in an expression."""
MAX_DEPTH = 100
"""Parentheses, signs and powers inside one another."""
MAX_BITS = 4096
"""Size of a numerator or denominator: about 1,200 digits."""
DECIMALS = 6
"""Decimals shown of a number that is not whole; below 0.1, counted from the first one that is not zero."""

# A number with commas is taken only where each comma stands before exactly three digits.
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)|(?P<operator>\*\*|//|[-+*/%()]))",
    re.ASCII,
)


class ArithmeticFailure(ValueError):
    """An expression that has no value here; the text says why, in a few words."""


def calculate(expression: str) -> str:
    """Evaluate ``expression`` and write its value as text.

    Args:
        expression: Numbers (``12``, ``1,000``, ``2.50``, ``.5``), ``+ - * / // % **``, signs, parentheses.

    Returns:
        A whole number as digits (``24``); any other value rounded to six decimals, below 0.1 counted from the
        first that is not zero, without trailing zeros (``2.5``, ``0.333333``).
    """
    return write(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """The exact value of ``expression``; see `calculate`."""
    if len(expression) > MAX_LENGTH:
        raise ArithmeticFailure(f"expression longer than {MAX_LENGTH} characters")
    parser = _Parser(_tokens(expression))
    value = parser.sum()
    if parser.current is not None:
        raise ArithmeticFailure(f"unexpected {parser.current!r}")
    return value


def write(value: Fraction) -> str:
    """``value`` as text, as `calculate` returns it."""
    if value.denominator == 1:
        return str(value.numerator)
    places = DECIMALS
    while abs(value) * 10**places < 10 ** (DECIMALS - 1):
        places += 1
    whole, decimals = divmod(round(abs(value) * 10**places), 10**places)
    text = f"{whole}.{decimals:0{places}d}".rstrip("0").rstrip(".")
    return "-" + text if value < 0 else text


def _tokens(expression: str) -> list[str]:
    text = expression.rstrip()
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ArithmeticFailure(f"unexpected {text[position:].lstrip()[0]!r}")
        found.append(match["number"] or match["operator"])
        position = match.end()
    if not found:
        raise ArithmeticFailure("empty expression")
    return found


class _Parser:
    """One pass over the tokens; each method reads what binds at least as tightly as its name."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    @property
    def current(self) -> str | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def sum(self) -> Fraction:
        value = self._product()
        while self.current in ("+", "-"):
            operator = self._take()
            right = self._product()
            value = _bounded(value + right if operator == "+" else value - right)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while self.current in ("*", "/", "//", "%"):
            value = _multiply(self._take(), value, self._signed())
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ArithmeticFailure("nested too deeply")
        if self.current in ("+", "-"):
            sign = -1 if self._take() == "-" else 1
            value = sign * self._signed()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Fraction:
        base = self._atom()
        if self.current != "**":
            return base
        self._take()
        return _raise(base, self._signed())

    def _atom(self) -> Fraction:
        token = self.current
        if token is None:
            raise ArithmeticFailure("unexpected end")
        if token == "(":
            self._take()
            value = self.sum()
            if self.current != ")":
                raise ArithmeticFailure("missing ')'")
            self._take()
            return value
        if not (token[0].isdigit() or token[0] == "."):
            raise ArithmeticFailure(f"unexpected {token!r}")
        self._take()
        return Fraction(token.replace(",", ""))

    def _take(self) -> str:
        token = self._tokens[self._position]
        self._position += 1
        return token


def _multiply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "*":
        return _bounded(left * right)
    if right == 0:
        raise ArithmeticFailure("division by zero")
    if operator == "/":
        return _bounded(left / right)
    if operator == "//":
        return _bounded(Fraction(left // right))
    return _bounded(left % right)


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ArithmeticFailure("exponent is not a whole number")
    power = exponent.numerator
    if base == 0 and power < 0:
        raise ArithmeticFailure("division by zero")
    if abs(base) in (0, 1):
        # The powers of these bases repeat with period two, so an exponent of any size can be made small.
        return base if power % 2 else base**2 if power else Fraction(1)
    # Checked before the power is taken: afterwards would be too late.
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if bits * abs(power) > MAX_BITS:
        raise ArithmeticFailure("number too large")
    return _bounded(Fraction(base**power))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ArithmeticFailure("number too large")
    return value
