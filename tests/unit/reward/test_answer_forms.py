"""An answer is written where its schema finds it, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.answer_forms import text_around, with_answer
from aworld_train.reward.extraction import extract
from tests.properties import examples

SCHEMAS = (
    "answer",
    "boxed",
    "last_line",
    "json:a.b[3]",
    'json:["the key"][-2]',
    r"regex:Answer: (?P<answer>(?s:.+))",
)


@examples(300)
@given(st.text(max_size=60), st.sampled_from(SCHEMAS))
def test_what_is_written_is_read_back(answer: str, schema: str) -> None:
    text = with_answer(answer, schema)
    assert text is None or extract(text, schema) in (answer.strip(), " ".join(answer.split()))


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    "answer",
    ["42", "a, b; c", r"\frac{1}{2}", 'say "no"', "北京", r"C:\new", "1\n2", "{[(1)]}", "<b>x</b>", "x</b>"],
)
def test_usual_answers_can_be_written_in_every_form(answer: str, schema: str) -> None:
    assert with_answer(answer, schema) is not None


@pytest.mark.parametrize(
    ("answer", "schema"),
    [
        ("", "answer"),
        (" \n ", "last_line"),
        ("x</answer>", "answer"),
        ("<think>x", "answer"),
        ("{", "boxed"),
        (r"\boxed{1} or 2", "boxed"),
        ("Paris", "regex:([A-D])"),
        ("42", "json:a[99999]"),
        ("42", "json:a[-99999]"),
    ],
)
def test_what_a_form_cannot_hold_is_not_written(answer: str, schema: str) -> None:
    assert with_answer(answer, schema) is None


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        (r"(?i)final answer\s*[:=]\s*(.+)", "42"),
        (r"####\s*(-?[\d,.]+)", "-1,234.5"),
        (r"^(?:The )?ANSWER(?: is)?[^\w\n]+(\w+)\.?$", "Paris"),
        (r"(?:Answer|Result): (?P<unit>[a-z]*) ?(?P<answer>\d+)", "7"),
        (r"(a)|(?P<answer>b+)", "bb"),
        (r"(?:so (?:it is ([A-D])))*", "C"),
        (r"\b([A-D])\b", "B"),
        (r"[[:alpha:]]{3}\d{2,}x{0}(?:y|(z+))", "zz"),
        (r"[]x](\d)[^]]", "1"),
        (r"\pL\p{Lu}\x41\x{41}=(.)", "1"),
        (r"结论[：:]\s*(.+)", "北京"),
        (r"\((\d)\)\[\.\]", "1"),
        (r"-?\d+(?:\.\d+)?", "-3.5"),
        (r"(?s).*", "two\nlines"),
        (r"((\d)\d)", "12"),
        (r"(?P<x>\d)(?:=(?P<answer>\d))?", "1"),
    ],
)
def test_a_pattern_is_met(pattern: str, answer: str) -> None:
    text = with_answer(answer, f"regex:{pattern}")
    assert text is not None
    assert extract(text, f"regex:{pattern}") == answer


@pytest.mark.parametrize("pattern", [r"\Q(\E(x)", "((((x))))" * 50, "(x){1000}", r"(?i:(x))"])
def test_a_pattern_that_is_not_understood_does_no_harm(pattern: str) -> None:
    text = text_around("x", pattern)
    assert text is None or len(text) < 10_000


@given(st.from_regex(r"[a-z(\[|)\].*+?\\d^$]{0,12}"))
def test_no_pattern_is_met_wrongly(pattern: str) -> None:
    try:
        text = with_answer("7", f"regex:{pattern}")
    except Exception as error:
        assert type(error).__name__ == "RewardError"
    else:
        assert text is None or extract(text, f"regex:{pattern}") == "7"
