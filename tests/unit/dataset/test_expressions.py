"""Expressions: one canonical text and one exact value for everything that a calculator accepts."""

import operator
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aworld_train.dataset.expressions import (
    MAX_CHARS,
    MAX_DEPTH,
    ExpressionError,
    evaluate,
    format_number,
    normalize,
)

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@pytest.mark.parametrize(
    ("written", "canonical", "value"),
    [
        ("48/2", "48/2", "24"),
        (" $1,080 * .5 ", "1080*0.5", "540"),
        ("16.50+9.00", "16.5+9", "25.5"),
        ("007+5.", "7+5", "12"),
        ("50%*48", "(50/100)*48", "24"),
        ("48*50%", "48*(50/100)", "24"),
        ("(10+20)%", "((10+20)/100)", "0.3"),
        ("560//10", "560/10", "56"),
        ("6×7", "6*7", "42"),
        ("3 x 4", "3*4", "12"),
        ("42÷6−1", "42/6-1", "6"),
        ("+30+46", "30+46", "76"),
        ("71+-3", "71-3", "68"),
        ("71--3", "71+3", "74"),
        ("3*+6", "3*6", "18"),
        ("-18/-2", "-18/(-2)", "9"),
        ("2+-3*4", "2-3*4", "-10"),
        ("-48+21+(-3)", "-48+21+(-3)", "-30"),
        ("15840/(440)", "15840/(440)", "36"),
        ("8-3-2", "8-3-2", "3"),
        ("100/5/2", "100/5/2", "10"),
        ("2+3*4", "2+3*4", "14"),
        ("1/3", "1/3", "1/3"),
        ("12", "12", "12"),
    ],
)
def test_an_expression_has_one_canonical_text_and_an_exact_value(
    written: str, canonical: str, value: str
) -> None:
    assert normalize(written) == canonical
    assert evaluate(written) == Fraction(value)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "empty expression"),
        ("   ", "empty expression"),
        ("5 feet*2", "words or units in the expression"),
        ("2**3", "malformed expression"),
        ("__import__('os')", "words or units in the expression"),
        ("1 1/2", "malformed expression"),
        ("5$3", "malformed expression"),
        ("2(3)", "malformed expression"),
        ("(2+3", "malformed expression"),
        ("2+3)", "malformed expression"),
        ("()", "malformed expression"),
        ("2+", "malformed expression"),
        ("*2", "malformed expression"),
        (".", "words or units in the expression"),
        ("1.2.3", "malformed expression"),
        ("1,08*2", "misplaced comma"),
        ("1,080,*2", "misplaced comma"),
        ("5/0", "division by zero"),
        ("5/(3-3)", "division by zero"),
        ("7//2", "floor division that leaves a remainder"),
        ("7%3", "percent sign between two numbers"),
        ("1+" * MAX_CHARS + "1", "expression too long"),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "parentheses too deep"),
        ("٣+٤", "words or units in the expression"),
    ],
)
def test_what_is_not_plain_arithmetic_is_refused_with_its_reason(written: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(written)
    assert caught.value.message == reason


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(24), "24"),
        (Fraction(5, 2), "2.5"),
        (Fraction(-3), "-3"),
        (Fraction(1, 3), "0.333333"),
        (Fraction(2, 3), "0.666667"),
        (Fraction(-1, 3), "-0.333333"),
        (Fraction(-1, 10**9), "-0.000000001"),
        (Fraction(1, 3000), "0.000333333"),
        (Fraction(1999999999, 10**9), "2"),
        (Fraction(10**14), "1" + "0" * 14),
    ],
)
def test_a_number_is_written_without_trailing_zeros(value: Fraction, text: str) -> None:
    assert format_number(value) == text


@given(st.fractions())
def test_a_written_number_reads_back_to_within_half_a_millionth(value: Fraction) -> None:
    text = format_number(value)
    assume(len(text) <= MAX_CHARS)
    assert abs(evaluate(text) - value) <= Fraction(1, 2 * 10**6)
    assert normalize(text) == text


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_a_decimal_of_six_places_is_written_exactly(units: int, places: int) -> None:
    value = Fraction(units, 10**places)
    assert evaluate(format_number(value)) == value


numbers = st.one_of(
    st.integers(0, 99999).map(str),
    st.decimals(min_value=0, max_value=9999, places=2).map(str),
)
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"(-{one})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join),
        st.tuples(inner, st.sampled_from(["+-", "--", "*-", "*+", "+ -"]), inner).map("".join),
    ),
    max_leaves=8,
)


@given(expressions)
def test_normalising_keeps_the_value_uses_only_calculator_signs_and_is_done_once(written: str) -> None:
    try:
        value = evaluate(written)
    except ExpressionError as error:
        assume(error.message not in ("division by zero", "expression too long"))
        raise
    canonical = normalize(written)
    assert set(canonical) <= set("0123456789.+-*/()")
    assert evaluate(canonical) == value
    assert normalize(canonical) == canonical
    assert not any(pair in canonical for pair in ("+-", "--", "*-", "/-", "++"))


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 999)), max_size=6), st.integers(0, 999))
def test_the_value_is_that_of_the_usual_precedence(steps: list[tuple[str, int]], first: int) -> None:
    terms, text = [Fraction(first)], str(first)
    for sign, number in steps:
        text += f"{sign}{number}"
        if sign in "*/":
            terms[-1] = OPERATORS[sign](terms[-1], number)
        else:
            terms.append(OPERATORS[sign](Fraction(0), number))
    assert evaluate(text) == sum(terms)


@given(st.text(alphabet="0123456789.,+-*/()%$x ", max_size=40))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    try:
        assert evaluate(normalize(text)) == evaluate(text)
    except ExpressionError as error:
        assert error.message
