"""Arithmetic as a plain calculator reads it: digits, a decimal point, + - * / and parentheses, nothing else.

One bounded recursive-descent parser reads an expression and returns its canonical text, so that ``$1,080 * .5`` and
``1080*0.5`` are the same task, and its exact value. ``eval`` is never used, and since there is no power operator the
size of a value is bounded by the length of its expression.
"""

import re
from fractions import Fraction

from aworld_train.errors import DatasetError

MAX_CHARS = 256
MAX_DEPTH = 32
DECIMALS = 6

_SIGNS = str.maketrans({"×": "*", "x": "*", "X": "*", "÷": "/", "−": "-", "–": "-", "$": " "})
_TOKEN = re.compile(r"[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+|//|[-+*/()%]|\s+")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_SUM, _PRODUCT = ("+", "-"), ("*", "/", "//")


class ExpressionError(DatasetError):
    """An expression that cannot be read; the message is one of a few fixed reasons, so it can be counted."""


def normalize(text: str) -> str:
    """The canonical text of an expression, made only of the characters ``0-9 . + - * / ( )``; parentheses are kept.

    ``$`` and thousands commas go, ``.5`` becomes ``0.5``, ``2.50`` becomes ``2.5``, ``50%`` becomes ``(50/100)``,
    ``//`` becomes ``/`` where it leaves no remainder, ``×`` and ``÷`` become operators, ``7+-3`` becomes ``7-3`` and
    ``7*-3`` becomes ``7*(-3)``. Raises ExpressionError for what is not arithmetic, divides by zero, or is too long.
    """
    return _Parser(text).result()[0]


def evaluate(expr: str) -> Fraction:
    """The exact value of an expression, normalised or not; raises as `normalize`."""
    return _Parser(expr).result()[1]


def format_number(value: Fraction) -> str:
    """The text of an answer: ``24``, else rounded to six decimals without trailing zeros (``2.5``, ``0.333333``).

    Below 0.1 the six are counted from the first digit that is not zero (``0.000333333``), as in the shipped calculator
    environment: the result of the tool must equal the ground truth.
    """
    if value.denominator == 1:
        return str(value.numerator)
    places = DECIMALS
    while abs(value) * 10**places < 10 ** (DECIMALS - 1):
        places += 1
    integer, fraction = divmod(round(abs(value) * 10**places), 10**places)
    text = f"{integer}.{fraction:0{places}d}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 else text


class _Parser:
    """Reads one expression from left to right. Every rule returns (canonical text, value)."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.position = 0
        self.depth = 0

    def result(self) -> tuple[str, Fraction]:
        text_and_value = self.sum()
        if self.position < len(self.tokens):
            raise ExpressionError("malformed expression")
        return text_and_value

    def sum(self) -> tuple[str, Fraction]:
        text, value = self.product()
        while (operator := self.take(_SUM)) is not None:
            right, amount = self.product()
            value = value + amount if operator == "+" else value - amount
            if right.startswith("-"):
                operator, right = ("-" if operator == "+" else "+"), right[1:]
            text += operator + right
        return text, value

    def product(self) -> tuple[str, Fraction]:
        text, value = self.signed()
        while (operator := self.take(_PRODUCT)) is not None:
            right, amount = self.signed()
            if operator == "*":
                value *= amount
            elif amount == 0:
                raise ExpressionError("division by zero")
            else:
                value /= amount
            if operator == "//" and value.denominator != 1:
                raise ExpressionError("floor division that leaves a remainder")
            text += operator[0] + (f"({right})" if right.startswith("-") else right)
        return text, value

    def signed(self) -> tuple[str, Fraction]:
        negative = False
        while (sign := self.take(_SUM)) is not None:
            negative ^= sign == "-"
        text, value = self.primary()
        while self.take(("%",)):
            if self.position < len(self.tokens) and self.tokens[self.position] not in (
                *_SUM,
                *_PRODUCT,
                ")",
                "%",
            ):
                raise ExpressionError("percent sign between two numbers")
            text, value = f"({text}/100)", value / 100
        return (f"-{text}", -value) if negative else (text, value)

    def primary(self) -> tuple[str, Fraction]:
        if self.take(("(",)) is None:
            return self.number()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError("parentheses too deep")
        text, value = self.sum()
        if self.take((")",)) is None:
            raise ExpressionError("malformed expression")
        self.depth -= 1
        return f"({text})", value

    def number(self) -> tuple[str, Fraction]:
        token = self.tokens[self.position] if self.position < len(self.tokens) else ""
        if not token or token[0] not in "0123456789.":
            raise ExpressionError("malformed expression")
        self.position += 1
        integer, _, fraction = token.partition(".")
        fraction = fraction.rstrip("0")
        text = (integer.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
        return text, Fraction(text)

    def take(self, operators: tuple[str, ...]) -> str | None:
        if self.position < len(self.tokens) and self.tokens[self.position] in operators:
            self.position += 1
            return self.tokens[self.position - 1]
        return None


def _tokens(text: str) -> list[str]:
    if not text.strip():
        raise ExpressionError("empty expression")
    if len(text) > MAX_CHARS:
        raise ExpressionError("expression too long")
    text = text.translate(_SIGNS)
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError("words or units in the expression")
        position = match.end()
        token = match.group()
        if "," in token:
            if not _GROUPED.fullmatch(token):
                raise ExpressionError("misplaced comma")
            token = token.replace(",", "")
        if not token.isspace():
            tokens.append(token)
    return tokens
