r"""What `math` could take for equal and is not, and what is equal though it looks different, in both directions.

A changed value is never right, and the same value in another notation always is.
"""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aworld_train.reward.math import math
from tests.properties import examples

DIFFERENT = {
    # Numbers: a tolerance is a part of the number, and a whole number has none.
    "nothing and little": ("0", "6.63e-34"),
    "0.0 and little": ("0.0", "6.63e-34"),
    "nothing and very little": ("0", "1e-7"),
    "small numbers": ("1e-10", "1.0000021e-10"),
    "whole numbers": ("1000001", "1000000"),
    "long whole numbers": ("12345678901234567890", "12345678901234567891"),
    "a long number and a power": ("1e20", "100000000000000000001"),
    "a sign": ("5", "-5"),
    "a sign in the exponent": ("1e3", "1e-3"),
    "a third, cut": ("1/3", "0.33"),
    "a root, rounded": (r"\sqrt{2}", "1.41"),
    "pi, rounded": ("pi", "3.14"),
    "pi, approximated": ("pi", "22/7"),
    "e, rounded": ("e", "2.718"),
    "a decimal point and a comma of thousands": ("1.000", "1000"),
    "a decimal comma and none": ("1,5", "15"),
    "two numbers and one": ("3,4", "34"),
    "mixed and not": ("1 1/2", "11/2"),
    "no value": ("1/0", "0"),
    "two without a value": ("1/0", "2/0"),
    "not a number": ("nan", "0"),
    "infinities": (r"\infty", r"-\infty"),
    "infinity and a large number": (r"\infty", "10^{99}"),
    # Scales, bases, percents, units, currencies.
    "a million": ("5", "5 million"),
    "millions and billions": ("5 million", "5 billion"),
    "bases": ("101_3", "101_2"),
    "percents of percents": ("50%", "5%"),
    "a percent and a currency": (r"5\%", r"\$5"),
    "a percent and a unit": ("5 %", "5 km"),
    "currencies": ("5 dollars", "5 euros"),
    "an area and a volume": ("5 m^3", "5 m^2"),
    "an area and a volume in LaTeX": (r"5\text{ m}^3", r"5\text{ m}^2"),
    "a length and an area": ("5 cm^2", "5 cm"),
    "speed and acceleration": ("5 m/s", "5 m/s^2"),
    "kinds of units": ("5 kg", "5 m"),
    "sizes of units": ("5 m", "5 km"),
    "bits of units": ("5 GB", "5 GiB"),
    "times": ("12 hours", "12 minutes"),
    "temperatures": ("-40 °C", "-40 °F"),
    "temperatures with an offset": ("5 K", "5 °C"),
    "things": ("5 apples", "5 oranges"),
    "feet and inches": ("5''", "5'"),
    # Equations, sets, lists, intervals, matrices.
    "a wrong equation and its side": ("4=5", "5"),
    "a wrong equation and its other side": ("4=5", "4"),
    "a wrong sum": ("2+2=5", "5"),
    "equations": ("x=5", "x=-5"),
    "two equations": ("x=1,y=2", "x=2,y=1"),
    "equations and a pair": ("x=1,y=2", "(2,1)"),
    "equations in another order and a pair": ("y=2,x=1", "(2,1)"),
    "a set and a pair": ("{1,2}", "(1,2)"),
    "a set and a pair in LaTeX": (r"\{1,2\}", "(1,2)"),
    "an interval and a set of its ends": ("(-1,1)", r"\{-1,1\}"),
    "sets": ("{1,2}", "{1,3}"),
    "a set and a larger one": ("{1,2}", "{1,2,3}"),
    "no set and nothing": (r"\emptyset", "0"),
    "a set of nothing": (r"\{\}", r"\{0\}"),
    "pairs": ("(1,2)", "(2,1)"),
    "lists of pairs": ("(1,2),(3,4)", "(1,3),(2,4)"),
    "open and closed": ("(0,1)", "[0,1]"),
    "half open": ("[1,2)", "(1,2]"),
    "less, and not more": ("x<5", r"x\le 5"),
    "less and more": ("x<5", "x>5"),
    "several and one": ("3 or 4", "3"),
    "more or less": (r"5 \pm 1", "5"),
    "more": (r"5 \pm 1", "6"),
    "a matrix and its transpose": (
        r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"
    ),
    # Functions and variables.
    "a factorial": ("5", "5!"),
    "another factorial": ("3!", "6!"),
    "an absolute value": ("|x|", "x"),
    "variables": ("2x", "2y"),
    "indices": ("x_{1}", "x_{2}"),
    "a function and its inverse": ("arcsin(1/2)", "sin(1/2)"),
    "a function and its derivative": ("f'(x)", "f(x)"),
    "derivatives": ("f''(x)", "f'(x)"),
    "a conjugate": ("i", "-i"),
    "a coefficient and an index of a root": (r"3\sqrt{2}", r"\sqrt[3]{2}"),
    "a binomial and a fraction": (r"\binom{5}{2}", r"\frac{5}{2}"),
    "a square of a sign": ("-2^2", "4"),
    "a constant of integration": ("x^2+C", "x^2"),
    # No mathematics.
    "times of day": ("11:30", "11:30 a.m."),
    "halves of a day": ("11:30 a.m.", "11:30 p.m."),
    "minutes": ("12:30", "12:31"),
    "ratios": ("1:2", "2:1"),
    "dates, which subtract to the same": ("2024-01-02", "2024-02-01"),
    "a date and what it subtracts to": ("2024-01-02", "2021"),
    "a date and what it divides to": ("1/2/2024", "1/4048"),
    "addresses": ("192.168.0.1", "192.168.0.2"),
    "versions": ("1.2.3", "1.2.4"),
    "a telephone number and what it subtracts to": ("555-1234", "-679"),
    "another base and its first digit": ("0x10", "0"),
    "words of the same letters": ("no", "on"),
    "longer words of the same letters": ("listen", "silent"),
    "truth": ("true", "false"),
    "an answer and none": ("none", "0"),
    "a digit and a letter": ("8", "B"),
    "zero and a letter": ("0", "O"),
    "a number and its name": ("5", "abc"),
    "nothing and a number": ("", "5"),
    "nothing": ("", ""),
    "signs alone": ("?", "?"),
}  # fmt: skip
EQUAL = {
    "a date": ("2024-01-02", "2024-01-02"),
    "an address": ("192.168.0.1", "192.168.0.1"),
    "a derivative and its value": ("f'(x)=2x", "2x"),
    "equations and a pair": ("x=1,y=2", "(1,2)"),
    "parameters and a pair": ("m=2,b=1", "(2,1)"),
    "equations in another order": ("x=1,y=2", "y=2,x=1"),
    "areas": ("5 cm^2", "500 mm^2"),
    "a difference": ("10-15", "-5"),
    "a ratio and a fraction": ("3:2", "6:4"),
    "seconds of arc without a number before": ("5'", "5"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_is_different_is_right_in_neither_direction(one: str, other: str) -> None:
    for answer, truth in ((one, other), (other, one)):
        found = math(answer, truth)
        assert found.value == 0.0, found.steps


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL.keys())
def test_what_is_equal_is_right_in_both_directions(one: str, other: str) -> None:
    for answer, truth in ((one, other), (other, one)):
        found = math(answer, truth)
        assert found.value == 1.0, found.steps


NUMBERS = st.fractions(-(10**6), 10**6, max_denominator=1000)
INTEGERS = st.integers(-(10**9), 10**9)
UNITS = ["m", "km", "kg", "hours", "minutes", "dollars", "euros", "m^2", "apples", "%"]


def _decimal(value: Fraction, places: int) -> str:
    scaled = value * 10**places
    assume(scaled.denominator == 1)
    digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"


@given(INTEGERS, st.data())
def test_a_whole_number_in_another_notation_is_right(value: int, data: st.DataObject) -> None:
    notation = data.draw(
        st.sampled_from(
            [
                f"{value:,}", f"{value}.0", f"${value}$", rf"\boxed{{{value}}}", f"{value}.", f" {value} ",
                f"x = {value}",
                f"{value:,}".replace(",", r"\,"), f"{value:,}".replace(",", "{,}"), f"{value}/1",
                rf"\frac{{{value}}}{{1}}",
                f"{value}e0", f"{value * 1000}e-3", rf"{value} \times 10^{{0}}", f"{value}\u00a0".strip(),
                str(value).replace("-", "−"), rf"\text{{{value}}}",
            ]
        )
    )  # fmt: skip
    found = math(notation, str(value))
    assert found.value == 1.0, found.steps


@given(NUMBERS)
def test_a_fraction_in_another_notation_is_right(value: Fraction) -> None:
    top, bottom = value.numerator, value.denominator
    sign = "-" if top < 0 else ""
    whole, rest = divmod(abs(top), bottom)
    notations = [
        f"{top}/{bottom}", f"{2 * top}/{2 * bottom}", rf"{sign}\frac{{{abs(top)}}}{{{bottom}}}",
        rf"{sign}\dfrac{{{3 * abs(top)}}}{{{3 * bottom}}}",
    ]  # fmt: skip
    if rest and whole:
        notations.append(f"{sign}{whole} {rest}/{bottom}")
    for notation in notations:
        found = math(notation, str(value))
        assert found.value == 1.0, (notation, found.steps)


@given(NUMBERS, st.integers(1, 4))
def test_a_decimal_in_another_notation_is_right(value: Fraction, places: int) -> None:
    value = Fraction(round(value * 10**places), 10**places)
    text = _decimal(value, places)
    for notation in (f"{text}0", f"{value * 100}e-2", f"{float(value):.12e}", str(value)):
        if "/" in notation and "e" in notation:
            continue
        found = math(notation, text)
        assert found.value == 1.0, (notation, text, found.steps)


@given(NUMBERS, st.one_of(st.integers(-(10**4), 10**4), st.fractions(-10, 10, max_denominator=100)))
def test_a_changed_number_is_wrong(value: Fraction, change: Fraction | int) -> None:
    changed = value + change
    # What differs by less than a millionth of itself is rounding.
    assume(abs(change) > abs(value) / 10**5)
    assume(change)
    for answer, truth in ((changed, value), (value, changed)):
        found = math(str(answer), str(truth))
        assert found.value == 0.0, found.steps


@given(INTEGERS, INTEGERS, st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_a_number_is_not_one_of_another_unit(value: int, other: int, unit: str, other_unit: str) -> None:
    assume(value and other)
    answer, truth = f"{value} {unit}", f"{other} {other_unit}"
    found = math(answer, truth)
    if unit == other_unit:
        assert found.value == float(value == other), found.steps
    elif {unit, other_unit} == {"m", "km"}:
        factor = 1000 if unit == "km" else Fraction(1, 1000)
        assert found.value == float(value * factor == other), found.steps
    elif {unit, other_unit} == {"hours", "minutes"}:
        factor = 60 if unit == "hours" else Fraction(1, 60)
        assert found.value == float(value * factor == other), found.steps
    else:
        assert found.value == 0.0, found.steps


@examples(15)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_a_set_has_no_order_and_a_list_has_one(values: list[int], chance: object) -> None:
    shuffled = list(values)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    written, other = (", ".join(map(str, one)) for one in (values, shuffled))
    assert math(rf"\{{{other}\}}", rf"\{{{written}\}}").value == 1.0
    assert math(f"({other})", f"({written})").value == float(values == shuffled)
    changed = ", ".join(map(str, [values[0] + 100, *values[1:]]))
    assert math(rf"\{{{changed}\}}", rf"\{{{written}\}}").value == 0.0
    assert math(rf"\{{{changed}\}}", f"({written})").value == 0.0
    fewer = ", ".join(map(str, values[1:]))
    assert math(rf"\{{{fewer}\}}", rf"\{{{written}\}}").value == 0.0
