"""The calculator of the example environment: exact, bounded, and never Python's own evaluator."""

import importlib.util
from fractions import Fraction
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.locations import REPOSITORY

SOURCE = REPOSITORY / "docker/calculator-mcp-server/arithmetic.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calculator_arithmetic", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


arithmetic = load()

whole = st.integers(0, 10**7)
decimal = st.tuples(st.integers(0, 10**5), st.integers(0, 9999)).map(lambda parts: f"{parts[0]}.{parts[1]}")
leading_dot = st.integers(0, 9999).map(lambda digits: f".{digits}")
number = st.one_of(whole.map(str), whole.map("{:,}".format), decimal, leading_dot)
operator = st.sampled_from(["+", "-", "*", "/", "//", "%"])
sign = st.sampled_from(["", "", "-", "+", "--"])
space = st.sampled_from(["", " "])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """An expression, and the same in Python with every number an exact fraction.

    In Python the floor of a fraction is an int, and a quotient of two ints would no longer be exact: what
    stands in parentheses is made a fraction again.
    """
    shape = draw(st.sampled_from(["number", "chain", "power", "group"])) if depth else "number"
    if shape == "number":
        text = draw(number)
        return text, f"F('{text.replace(',', '')}')"
    if shape == "group":
        inside, reference = draw(expressions(depth - 1))
        return f"({inside})", f"F({reference})"
    if shape == "power":
        base, reference = draw(expressions(depth - 1))
        exponent = draw(st.integers(-3, 4))
        return f"({base})**{exponent}", f"F({reference})**({exponent})"
    parts = draw(st.lists(st.tuples(sign, expressions(depth - 1)), min_size=2, max_size=4))
    text = reference = ""
    for index, (prefix, (one, one_reference)) in enumerate(parts):
        between = draw(operator) if index else ""
        gap = draw(space)
        text += f"{gap}{between}{gap}{prefix}{one}"
        reference += f"{between}{prefix}{one_reference}"
    return text, reference


def value_of(reference: str) -> Fraction | None:
    try:
        return Fraction(eval(reference, {"F": Fraction}))
    except ZeroDivisionError:
        return None


@given(expressions())
def test_the_value_is_what_python_computes_with_exact_fractions(pair: tuple[str, str]) -> None:
    text, reference = pair
    expected = value_of(reference)
    if expected is None:
        with pytest.raises(arithmetic.ArithmeticFailure, match="division by zero"):
            arithmetic.evaluate(text)
    else:
        assert arithmetic.evaluate(text) == expected


@given(st.fractions())
def test_what_is_written_is_the_value_to_six_decimals(value: Fraction) -> None:
    text = arithmetic.write(value)
    error = abs(Fraction(text) - value)
    if value.denominator == 1:
        assert text == str(value.numerator)
    elif abs(value) >= Fraction(1, 10):
        assert error <= Fraction(1, 2 * 10**6)
    else:
        assert error <= abs(value) / (2 * 10**5)
    assert "." not in text or text[-1] not in "0."


@given(st.text("0123456789.,+-*/%() ", max_size=60))
def test_any_text_of_these_characters_gives_a_value_or_says_why_not(text: str) -> None:
    try:
        written = arithmetic.calculate(text)
    except arithmetic.ArithmeticFailure as failure:
        assert str(failure)
    else:
        Fraction(written)


@given(st.text(max_size=40))
def test_any_text_at_all_gives_a_value_or_says_why_not(text: str) -> None:
    try:
        arithmetic.calculate(text)
    except arithmetic.ArithmeticFailure as failure:
        assert str(failure)


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("48/2", "24"),
        ("1/3", "0.333333"),
        ("2/3", "0.666667"),
        ("5/2", "2.5"),
        ("1-4", "-3"),
        ("-1/8", "-0.125"),
        (".5+.25", "0.75"),
        ("1,000*2", "2000"),
        ("1,234,567.5", "1234567.5"),
        ("5.", "5"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("2**-1", "0.5"),
        ("0**0", "1"),
        ("(-1)**10**300", "1"),
        ("7//-2", "-4"),
        ("-7%3", "2"),
        ("7.5%2", "1.5"),
        ("1/3000", "0.000333333"),
        (" ( 1 + 2 ) * 3 ", "9"),
    ],
)
def test_these_expressions_are_written_so(expression: str, written: str) -> None:
    assert arithmetic.calculate(expression) == written


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "empty expression"),
        ("1/0", "division by zero"),
        ("1//0", "division by zero"),
        ("1%0", "division by zero"),
        ("0**-1", "division by zero"),
        ("2**.5", "exponent is not a whole number"),
        ("9**9**9", "number too large"),
        ("9**9**9**9", "number too large"),
        ("2**4000*2**4000", "number too large"),
        ("(1", r"missing '\)'"),
        ("1)", r"unexpected '\)'"),
        ("1+", "unexpected end"),
        ("1 2", "unexpected '2'"),
        ("1,00", "unexpected ','"),
        ("1,0000", "unexpected '0'"),
        (",5", "unexpected ','"),
        ("1__2", "unexpected '_'"),
        ("abs(1)", "unexpected 'a'"),
        ("__import__('os')", "unexpected '_'"),
        ("(" * 200 + "1" + ")" * 200, "nested too deeply"),
        ("-" * 200 + "1", "nested too deeply"),
        ("1**" * 200 + "1", "nested too deeply"),
        ("1+" * 500 + "1", "longer than 1000 characters"),
    ],
)
def test_these_expressions_are_refused_with_a_reason(expression: str, reason: str) -> None:
    with pytest.raises(arithmetic.ArithmeticFailure, match=reason):
        arithmetic.calculate(expression)
