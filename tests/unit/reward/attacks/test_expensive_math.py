r"""Answers that take `math` for ever to compute: each is wrong (``too_hard`` or compared), and none is left out.

Only a ground truth that cannot be computed leaves an episode without a score.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.reward.math import math
from aworld_train.reward.math_size import too_large
from aworld_train.reward.score_types import TooHard
from aworld_train.reward.scoring import score, score_now
from tests.properties import examples

TRUTHS = ("12", r"\frac{\sqrt{3}}{2}", r"\{1,2,3\}")
WRONG = (ScoreOutcome.too_hard, ScoreOutcome.scored)

# Refused at once, by their size.
REFUSED = {
    "a tower of powers": "9^{9^9}",
    "a tower in Python": "9**9**9",
    "a tower without braces": "3^3^3^3",
    "a factorial above": "9^{9!}",
    "a large exponent": "2^{1000000}",
    "a large exponent of a variable": "2^{x^{99999999}}",
    "an exponent of superscripts": "2" + "²" * 900,
    "a tower of variables": "x^" * 450 + "2",
    "a tower of e": "e^{e^{e^{e^{e}}}}",
    "a factorial": "100000000!",
    "factorials of factorials": "((5!)!)!",
    "a double factorial": "9999999!!",
    "many signs": "1" + "!" * 500,
    "a factorial in brackets": r"\left(10^9\right)!",
    "a gamma function": r"\Gamma(999999)",
    "a binomial": r"\binom{1000000}{500000}",
    "brackets": "[" * 450 + "1" + "]" * 450,
    "open brackets": "(" * 450,
    "open braces": "{" * 999,
    "nested functions": r"\sin(" * 20 + "1" + ")" * 20,
    "nested roots": r"\sqrt{" * 20 + "2" + "}" * 20,
    "nested fractions": r"\frac{1}{1+" * 20 + "x" + "}" * 20,
    "nested texts": r"\text{" * 150,
    "indices": "x_{" * 300,
    "a set of 250": r"\{" + ",".join(map(str, range(250))) + r"\}",
    "a list of 500": "1," * 499,
    "a union of intervals": r"\cup".join(f"({n},{n}.5)" for n in range(70)),
    "a sum to expand": "(x+1)^{9999}",
    "a product of sums to expand": "(x+1)^{190}(x+2)^{190}(x+3)^{190}",
    "many summands": "(a+b+c+d+f+g+h)^{100}",
    "a fraction of sums": r"\frac{(x+y+z)^{60}}{(x-y)^{60}}",
    "a power of a matrix": r"\begin{pmatrix}x&y\\z&w\end{pmatrix}^{9999}",
    "a sum to a million": r"\sum_{n=1}^{1000000} n!",
    "a product to a million": r"\prod_{n=1}^{1000000} n",
    "a unit's exponent": r"5\text{ m}^{999999999}",
}
# Computed within the limits, and wrong.
COMPARED = {
    "a thousand digits": "7" * 999,
    "decimals": "0." + "3" * 900,
    "an exponent of a number": "1e999999999",
    "powers": "2^{10000}+3^{9999}+7^{9999}",
    "a power of a fraction": r"(\frac{123456789}{987654321})^{9999}",
    "a root of 600 digits": r"\sqrt{" + "7" * 600 + "}",
    "a sum of roots": "+".join(rf"\sqrt{{{n}}}" for n in range(2, 60)),
    "cube roots": r"\sqrt[3]{2+" * 7 + "2" + "}" * 7,
    "binomials": r"\cdot".join([r"\binom{999}{499}"] * 60),
    "a constructible angle": r"\cos(\frac{\pi}{65537})",
    "a matrix": r"\begin{pmatrix}" + r"\\".join("&".join(f"x_{{{i}{j}}}" for j in range(9)) for i in range(9))
    + r"\end{pmatrix}",
    "an equation": "x^9+3x^5+2x+1=0",
    "an inequality": r"\frac{x^7-3x+1}{x^5+x-1}<\sqrt{x}",
    "a remainder": r"3^{9999} \mod 7",
    "units": "5 " + "m " * 300,
    "units of units": "5 m/s/s/s/s/s/s/s/s",
    "words of units": "5 " + "square " * 100 + "m",
    # Made for regular expressions.
    "letters": "a" * 990 + "!",
    "backslashes": "\\" * 999,
    "numbers and spaces": "1 " * 499,
    "mixed numbers": "1 1/2 " * 150,
    "fractions without arguments": r"\frac" * 199,
    "signs": "-" * 999 + "1",
    "roots without brackets": "√" * 900,
    "equals signs": "x=" * 450,
    "or": "or " * 300,
    "percents": "%" * 999,
    "dollars": "$" * 999,
    "points": "." * 999,
    # Unicode.
    "mathematical digits": "\U0001d7d7" * 900,
    "accents": "5" + "\u0301" * 900,
    "right to left": "\u202e5" * 400,
    "no width": "\u200b" * 900,
    "nothing": "\x00" * 900,
    # Long.
    "a megabyte of digits": "5" * 1_000_000,
    "a megabyte of letters": "x" * 1_000_000,
    "a megabyte of brackets": "(" * 1_000_000,
}  # fmt: skip
HARD_TRUTH = r"\frac{\sqrt{x}}{2}"


async def results(answer: str, truths: tuple[str, ...]) -> list[ScoreResult]:
    text = f"<answer>{answer}</answer>"
    return await asyncio.gather(*(score(text, ground_truth=truth, scorer="math") for truth in truths))


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED.keys())
async def test_a_bomb_is_wrong_and_computed_by_nobody(answer: str) -> None:
    for result in await results(answer, TRUTHS):
        assert (result.score, result.cause) == (0.0, None), result.steps
        assert result.outcome in WRONG
    with pytest.raises(TooHard, match="the answer has"):
        math(answer, r"\frac{\sqrt{3}}{2}")


@pytest.mark.parametrize("answer", COMPARED.values(), ids=COMPARED.keys())
async def test_what_is_hard_to_compare_is_wrong(answer: str) -> None:
    for result in await results(answer, TRUTHS):
        assert (result.score, result.cause) == (0.0, None), result.steps
        assert result.outcome in WRONG


@pytest.mark.parametrize("truth", REFUSED.values(), ids=REFUSED.keys())
def test_a_ground_truth_that_cannot_be_computed_is_compared_as_text_only(truth: str) -> None:
    # Brackets alone are no text either.
    assert math(truth, truth).value == (1.0 if any(map(str.isalnum, truth)) else None)
    other = math(r"\frac{\sqrt{3}}{2}", truth)
    assert other.value is None and "the ground truth has" in other.steps[-1]


def test_a_comparison_that_takes_too_long_is_ended_and_wrong() -> None:
    # No rule knows this one; should there be one some day, another takes its place.
    nested = r"\int_0^{\infty} e^{-x^4}\sin(x^3)\ln(x+1) dx"
    assert too_large(nested) is None
    scored = score_now(f"<answer>{nested}</answer>", ground_truth=HARD_TRUTH, scorer="math")
    assert (scored.score, scored.outcome) == (0.0, ScoreOutcome.too_hard)
    assert scored.steps == ("the scorer math took longer than 3 seconds of processor time",)
    assert score_now("<answer>1/2</answer>", ground_truth="0.5", scorer="math").score == 1.0


@pytest.mark.parametrize(
    "latex",
    [
        "2^{2^{10}}", "x^{2n}", "e^{-x^2/2}", "e^{e^{2}}", "10^{33}", "10^{-34}", "n!", "(n-1)!", r"\frac{10!}{3!7!}",
        "(2n)!", r"\frac{(n+1)!}{2}", r"\binom{10}{3}", "(x+1)^{100}", "(x+y+z)^{10}",
        "(x-1)^5(x-2)^4(x+3)^3(x-7)^2(x+9)^2", "(a+b)^2(a-b)^2(a+2b)^2",
        "(2^{10})^{3}", "9!!", r"x^{\frac{1000}{999}}", "a != b", r"\Gamma(10)", r"\Gamma(n+\frac{1}{2})",
        r"1+\frac{1}{1+\frac{1}{1+\frac{1}{1+\frac{1}{2}}}}", "x_{1}^{2}", "2^{2024-2020}",
        r"(-\infty,-2)\cup(-2,2)\cup(2,\infty)", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{10}", "x^{x^{x}}",
    ],
)  # fmt: skip
def test_what_can_be_computed_is_no_bomb(latex: str) -> None:
    assert too_large(latex) is None


EXPRESSIONS = st.recursive(
    st.sampled_from(["2", "9", "1000", "10^9", "x", "y", "e", r"\pi", "0.1"]),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(
                ["(%s)!", r"\sqrt{%s}", r"\sin(%s)", r"\ln(%s)", r"\Gamma(%s)", "|%s|", r"\{%s,1\}"]
            ),
            inner,
        ).map(lambda pair: pair[0] % pair[1]),
        st.tuples(
            st.sampled_from(
                ["(%s)^{%s}", r"\frac{%s}{%s}", r"\binom{%s}{%s}", "(%s+%s)", r"%s \cdot %s", "%s, %s"]
            ),
            inner,
            inner,
        ).map(lambda triple: triple[0] % (triple[1], triple[2])),
    ),
    max_leaves=10,
)


@examples(20)
@given(EXPRESSIONS)
def test_no_expression_leaves_its_episode_out(answer: str) -> None:
    scored = score_now(f"<answer>{answer}</answer>", ground_truth=r"\frac{\sqrt{19}}{23}", scorer="math")
    assert (scored.score, scored.cause) == (0.0, None), scored
    assert scored.outcome in WRONG
