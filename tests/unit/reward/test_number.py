"""The scorer ``number``: the same number however it is dressed, or the same text where there is none."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.expressions import format_number
from aworld_train.reward.number import number, numeric_match
from aworld_train.reward.score_types import ScoringContext
from aworld_train.reward.text_normalization import is_hidden


def right(answer: str, truth: str, info: dict[str, Any] | None = None) -> bool:
    value = number(answer, truth, ScoringContext(info=info or {})).value
    assert value in (0.0, 1.0)
    return value == 1.0


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("24", "24"),
        (" 24 ", "24"),
        ("24.", "24"),
        ("24.0", "24"),
        ("24.00", "24"),
        ("+24", "24"),
        ("-3", "-3"),
        ("−3", "-3"),
        ("$24", "24"),
        ("$ 24.00", "24"),
        ("-$24", "-24"),
        ("$-24", "-24"),
        ("€7", "7"),
        ("1,080", "1080"),
        ("1080", "1,080"),
        ("109,200,000", "109200000"),
        ("50%", "50"),
        ("50 %.", "50"),
        ("1/2", "0.5"),
        ("-1 / 2", "-0.5"),
        (".5", "0.5"),
        ("1/3", "0.333333"),
        ("0.3333", "0.333333"),
        ("0.33333333333", "0.333333"),
        ("66.67", "66.666667"),
        ("23.999999999999996", "24"),
        ("5.551115123125783e-17", "0"),
        ("1e3", "1000"),
        ("0", "0"),
        ("-0", "0"),
        ("٢٤", "24"),
    ],
)
def test_the_same_number_matches_however_it_is_dressed(answer: str, truth: str) -> None:
    assert numeric_match(answer, truth)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("25", "24"),
        ("-24", "24"),
        ("24.001", "24"),
        ("24.00001", "24"),
        ("1000001", "1000000"),
        ("123456789012346", "123456789012345"),
        ("0.33", "0.333333"),
        ("12346", "12345.5"),
        ("12345.49", "12345.5"),
        ("0.5", "50"),
        ("48/2", "24"),
        ("2/4", "0.5"),
        ("24/1", "24"),
        ("1/0", "0"),
        ("0/0", "0"),
        ("12 or 24", "24"),
        ("24 24", "24"),
        ("2 4", "24"),
        ("1,2,3", "123"),
        ("1,08", "108"),
        ("--24", "-24"),
        ("-$-24", "24"),
        ("24 clips", "24"),
        ("", "24"),
        ("", ""),
        (".", "."),
        ("$", "$"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("1e99999999", "1"),
        ("9" * 100_000, "9" * 100_000),
        ("0x18", "24"),
        ("2_4", "24"),
    ],
)
def test_what_is_not_that_one_number_does_not_match(answer: str, truth: str) -> None:
    assert not numeric_match(answer, truth)


@given(st.text(max_size=80), st.text(max_size=80))
def test_matching_never_fails_whatever_the_texts(answer: str, truth: str) -> None:
    assert numeric_match(answer, truth) in (True, False)


@given(st.fractions(-(10**14), 10**14))
def test_every_written_number_matches_itself_and_not_the_next_integer(value: Fraction) -> None:
    text = format_number(value)
    assert numeric_match(text, text)
    assert not numeric_match(format_number(value + 1), text)


@given(st.integers(-(10**15), 10**15))
def test_an_integer_matches_with_and_without_its_dress(value: int) -> None:
    for dressed in (f"{value:,}", f"${value}", f" {value}.0 ", f"{value}%."):
        assert numeric_match(dressed, str(value))
    assert not numeric_match(str(value + 1), str(value))


@pytest.mark.parametrize("answer", ["3/4", " 3 / 4 ", "$3/4", "48/2"])
def test_repeating_the_expression_is_no_answer_to_it(answer: str) -> None:
    info = {"expression": "3/4", "question": None}
    assert not right(answer, "0.75", info)
    assert right("0.75", "0.75", info)


def test_a_fraction_answers_a_question() -> None:
    assert right("3/4", "0.75", {"expression": None, "question": "?"})
    assert right("3/4", "0.75")


@pytest.mark.parametrize(
    ("answer", "truth", "expected"),
    [
        ("  new\nYORK ", "New York", True),
        ("York", "New York", False),
        ("?", "?", False),
        ("!", "?", False),
        ("", "", False),
        ("12 clips", "12 clips", True),
        ("12", "12 clips", False),
        ("a" * 30_000, "a" * 30_000, True),
        ("A" * 30_000, "a" * 30_000, False),
    ],
)
def test_a_ground_truth_that_is_no_number_is_compared_as_text(
    answer: str, truth: str, expected: bool
) -> None:
    assert right(answer, truth) is expected


@pytest.mark.parametrize(
    ("answer", "truth", "step"),
    [
        ("1/2", "0.50", "The ground truth is the number 1/2, the answer is 1/2."),
        ("about 5", "5", "The ground truth is the number 5, the answer is not a number."),
        ("Paris", "Paris", "The ground truth is not a number: compared as text."),
    ],
)
def test_the_comparison_is_explained(answer: str, truth: str, step: str) -> None:
    assert number(answer, truth, ScoringContext()).steps == (step,)


@given(st.text(max_size=40) | st.text(alphabet="0123456789/.,$%-−e ", max_size=12))
def test_a_ground_truth_answers_itself_unless_it_is_hidden(truth: str) -> None:
    assert right(truth, truth) is not is_hidden(truth)


@given(st.text(max_size=80), st.text(max_size=80))
def test_scoring_never_fails_whatever_the_texts(answer: str, truth: str) -> None:
    right(answer, truth)
