"""`math`: the same mathematics written otherwise is right, and nothing is right by accident."""

import asyncio
import json
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.math import math
from aworld_train.reward.math_text import as_latex, is_prose, quantity
from aworld_train.reward.numbers import read_number
from aworld_train.reward.scoring import score
from tests.gsm8k import FILES, GSM8K, needs_gsm8k
from tests.properties import examples
from tests.unit.test_imports import imported_by

# An answer, a ground truth that is the same; how MATH's answers and GSM8K's are written, and models' ways to.
SAME = [
    ("1/2", "0.5"),
    ("1/2", r"\frac12"),
    ("0.5", r"\frac{1}{2}"),
    (r"\dfrac{1}{2}", "1/2"),
    ("-1/2", r"-\frac{1}{2}"),
    ("3 1/2", "7/2"),
    (r"3\frac12", "3.5"),
    ("0.333333", "1/3"),
    ("2/4", "1/2"),
    ("1/3 + 1/6", "1/2"),
    ("1,000", "1000"),
    ("12,345.60", "12345.6"),
    ("1e3", "1000"),
    ("007", "7"),
    ("-7", "−7"),
    ("2^10", "1024"),
    ("2^{10}", "1024"),
    ("2**(-1)", "1/2"),
    ("10^(-3)", "0.001"),
    ("$5$", "5"),
    (r"\(5\)", "5"),
    (r"\[5\]", "5"),
    (r"\boxed{5}", "5."),
    ("x=5", "5"),
    ("5", "x = 5"),
    ("y=2x+1", "2x+1"),
    ("$18", "18"),
    (r"\$18", "18.00"),
    ("€3.50", "3.5"),
    ("18 dollars", "18"),
    ("5 apples", "5"),
    ("5 cm", "5"),
    ("5 cm", r"5\text{ cm}"),
    ("50%", "50"),
    ("50%", "0.5"),
    (r"50\%", "1/2"),
    ("50", "50%"),
    ("20 percent", "20%"),
    ("30°", "30"),
    (r"30^\circ", "30°"),
    ("30 degrees", "30"),
    (r"\{1,2\}", "{2,1}"),
    ("{1,2}", "1,2"),
    ("x=1 or x=2", "x=1,x=2"),
    ("(1,2]", "(1,2]"),
    ("[1,2]", r"x \in [1,2]"),
    (r"(-\infty, 3)", "x<3"),
    ("x<=5", r"x \le 5"),
    ("x>3", "3<x"),
    ("∞", r"\infty"),
    ("√2", r"\sqrt2"),
    ("sqrt(2)/2", r"\frac{1}{\sqrt{2}}"),
    (r"2\sqrt{3}", "sqrt(12)"),
    ("π/4", "pi/4"),
    ("3 pi", r"3\pi"),
    ("x**2+1", "x^2+1"),
    ("x²+1", "x^2+1"),
    ("2*x", "2x"),
    ("(x+1)**2", "x^2+2x+1"),
    ("sin(x)^2+cos(x)^2", "1"),
    ("3+4i", "4i+3"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
    ("Tuesday", "tuesday"),
    (r"\text{Tuesday}", "Tuesday"),
    ("5 cm", "5 centimeters"),
    ("5 hours", "5 hrs"),
    ("60 mph", "60 miles per hour"),
    ("60 mph", "60 miles/hour"),
    (r"4.5 \times 10^{33}", "4.5e33"),
    (r"4.5 \cdot 10^{-3}", "0.0045"),
    (r"11,\! 111", "11111"),
    (r"11,\!111", "11,111"),
    (r"1\,000", "1000"),
    ("1 000", "1000"),
    ("12 345 678.5", "12345678.5"),
    ("10{,}000", "10000"),
    ("5 million", "5,000,000"),
    (r"0.\overline{3}", "1/3"),
    (r"0.1\overline{6}", r"\frac16"),
    ("\uff15", "5"),
    ("\uff11\uff12\uff0e\uff15", "12.5"),
    (r"\textnormal{blue}", "blue"),
    (r"5\textnormal{ cm}", "5"),
    ("5 m", "500 cm"),
    ("1.5 hours", "90 minutes"),
    ("2.5 billion dollars", r"\$2,500,000,000"),
    ("11:30 AM", "11:30 a.m."),
    ("101_2", "101"),
    ("101_{2}", "101_2"),
    ("5 square feet", "5 ft^2"),
    (r"5\text{ m}^2", "5 square meters"),
    (r"\sqrt{2}\text{ m}", r"100\sqrt{2}\text{ cm}"),
    ("0.30000003", "0.3"),
    ("18 dollars", r"\$18"),
    ("x_1=5", "5"),
    ("f(x)=x^2", "x^2"),
    # As the golds of MATH and OCW are written.
    (r"\frac \pi4 + 2", r"2+\frac{\pi}{4}"),
    (r"\frac{12}{5,525}", r"\frac{12}{5525}"),
    (r"111, \! 111, \! 111", "111111111"),
    (r"99\pi", r"99\pi \text{ square inches}"),
    (r"\dfrac{3}{4}\pi\text{ inches}", r"\frac{3}{4}\pi\text{ inches}"),
    (r"10\;\text{edges}", "10"),
    (r"10\ \text{edges}", "10"),
    (r"\tfrac{1}{2004!}", r"\frac{1}{2004!}"),
    ("26/2", r"\text{13}"),
    ("1:03 p.m.", r"\text{1:03 PM}"),
    (r"x=\text{Monday}", "Monday"),
    ("Monday", "x = Monday"),
    ("x = 1,000", "1000"),
    ("10^{11}", "1e11"),
    ("10^11", "1e11"),
    ("1e-5", "10^{-5}"),
    ("4.5×10³³", "4.5e33"),
    ("1×10⁻⁵", "1e-5"),
    (r"45 \times 10^{32}", "4.5e33"),
    ("185,000", "1.85e5"),
    ("1,234", "1234.0"),
    ("-1./3", "-1/3"),
    ("-1.5", "-3./2"),
    ("np.arcsin(10/13)", r"\arcsin(10/13)"),
    ("math.sqrt(2)", r"\sqrt{2}"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", "(E_1 + 2 E_2)/3"),
    (r"\lambda_{\text {red}}/\sqrt{2}", r"\frac{\lambda_{\text {red}}}{\sqrt{2}}"),
    ("(C)", r"\text{(C)}"),
    ("MR = SRMC", "MR=SRMC"),
    (r"\frac{dM}{dt} = L_{\odot} M^{6}", r"\frac{dM}{dt}=L_{\odot} M^{6}"),
]
OTHER = [
    ("1/2", "0.51"),
    ("5", "6"),
    ("0.1234561", "0.12346"),
    ("1/0", "5"),
    ("10000", "1,000"),
    ("12 or 13", "13"),
    ("12 or 13", "12"),
    ("The answer is 5 not 6", "6"),
    ("5", "[5, 6]"),
    ("1,2", "1,2,3"),
    ("[1,2]", "(1,2)"),
    ("x=5", "x=6"),
    ("x+1", "x"),
    ("50%", "5"),
    ("5 cm", "5 m"),
    ("cba", "abc"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\4&3\end{pmatrix}"),
    ("  ", "5"),
    ("[", "["),
    ("$", "$"),
    ("nan", "5"),
    ("1e400", "inf"),
    ("none", ""),
    ("9" * 2000, "9" * 2000),
    ("11, 111, 111, 100", r"11,\! 111,\! 111,\! 100"),
    (r"2\pi rh", r"2\pi"),
    ("10^{-3}", "-1000"),
    ("10^{12}", "1e11"),
    ("1.85", "1.85e5"),
    ("E_1", "E_2"),
    ("E_1", "e"),
    ("Monday", "x=Tuesday"),
    ("x=5", "y=5"),
    (r"\text{VW}", "WV"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
]


@pytest.mark.parametrize(("answer", "truth"), SAME)
def test_the_same_is_right(answer: str, truth: str) -> None:
    found = math(answer, truth)
    assert found.value == 1.0, found.steps
    assert found.steps[-1].startswith(("equal", "the same"))


@pytest.mark.parametrize(("answer", "truth"), OTHER)
def test_anything_else_is_wrong(answer: str, truth: str) -> None:
    found = math(answer, truth)
    assert found.value == 0.0, found.steps
    assert found.steps


@given(st.fractions(-(10**5), 10**5, max_denominator=10**6))
def test_every_fraction_is_itself_and_not_another(value: Fraction) -> None:
    number = read_number(str(value))
    assert number is not None and number.value == value
    assert math(str(value), str(value)).value == 1.0
    assert math(str(value + 1), str(value)).value == 0.0


@examples(200)
@given(st.text("0123456789.,-+/%$ {}\\^()[]=xe½²√π°abc", max_size=40))
def test_any_text_can_be_prepared(text: str) -> None:
    found = quantity(text)
    assert is_prose(found.text) in (True, False)
    assert as_latex(found.text).isascii() or not found.text.isascii()
    assert read_number(found.text) is None or not is_prose(found.text)


class StuckReading(Exception):
    """In place of a text that math-verify reads for ever."""


def never_read(latex: str) -> list[Any]:
    raise StuckReading


@pytest.mark.parametrize(
    "answer", [r"\sqrt{x}", "$\\sqrt{x}$", "1/2", "x+1", "Tuesday", "the sea is deep", "{1,2}", ""]
)
def test_a_ground_truth_that_is_never_read_fails_with_every_answer_even_itself(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aworld_train.reward.math._parsed", never_read)
    with pytest.raises(StuckReading):
        math(answer, r"\sqrt{x}")


@pytest.mark.parametrize(
    ("answer", "truth", "value"),
    [
        ("7", "8", 0.0),
        ("the sea", "a lake", 0.0),
        ("the sea", "the sea", 1.0),
        ("x", "9^{9^9}", None),
    ],
)
def test_numbers_words_and_what_is_too_large_are_not_read(
    answer: str, truth: str, value: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aworld_train.reward.math._parsed", never_read)
    assert math(answer, truth).value == value


def test_plain_numbers_need_no_computer_algebra() -> None:
    script = "from aworld_train.reward.math import math\nassert math('$1,000.00', '1000').value == 1"
    assert imported_by(script, ["sympy", "math_verify"]) == "[]"


@needs_gsm8k
async def test_all_of_gsm8k_is_right_against_itself_and_nothing_that_was_changed_is() -> None:
    lines = [line for name in FILES for line in (GSM8K / name).open(encoding="utf-8")]
    answers = [json.loads(line)["answer"].rpartition("####")[2].strip() for line in lines]
    assert len(answers) == 8292
    # As many at a time as a trainer would have.
    right = 0
    for start in range(0, len(answers), 256):
        part = answers[start : start + 256]
        results = (score(f"<answer>{one}</answer>", ground_truth=one, scorer="math") for one in part)
        right += sum(scored.score == 1.0 for scored in await asyncio.gather(*results))
    assert right == len(answers)
    chance = random.Random(0)
    changed = [(one, _changed(one, chance)) for one in chance.sample(answers, 1000)]
    results = (score(f"<answer>{other}</answer>", ground_truth=one, scorer="math") for one, other in changed)
    assert [scored.score for scored in await asyncio.gather(*results)] == [0.0] * 1000


def _changed(answer: str, chance: random.Random) -> str:
    """Another number: a digit more, a digit changed, a sign, or off by one."""
    value = answer.replace(",", "")
    at = chance.randrange(len(value))
    digit = value[at]
    ways = [f"{float(value) + 1:g}" if float(value) < 1e5 else f"1{value}", f"1{value}", f"{value}7"]
    if digit.isdigit():
        ways.append(value[:at] + str((int(digit) + chance.randrange(1, 10)) % 10) + value[at + 1 :])
    if float(value):
        ways.append(f"-{value}".replace("--", ""))
    return chance.choice([way for way in ways if float(way) != float(value)])
