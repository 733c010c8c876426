"""A policy may write anything: every reader ends, raises nothing, and makes no call out of rubbish."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.rollout.formats import FORMATS, read_turn
from aworld_train.thinking import MARKS, divide
from tests.properties import examples, part_of
from tests.unit.rollout.formats.test_families import BOTH, TOOLS

LENGTH = part_of(1_000_000)
PIECES = sorted(
    {
        *(mark for marks in MARKS for mark in (marks.opens, marks.closes)),
        *(
            piece
            for text in BOTH.values()
            for piece in text.replace(">", ">\0").replace(",", ",\0").split("\0")
        ),
        *("{", "}", "[", "]", '"', "'", "\\", "\ud800", "\x00", "9" * 5000, "1e999", "NaN", "é", "\n", "("),
    }
)
REPEATED = [
    "[",
    "{",
    " ",
    "<",
    "\\",
    "[find(",
    '{"name":',
    "</think>",
    "</parameter> ",
    "<tool_call>{</tool_call>",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), st.sampled_from(sorted(FORMATS)))
@examples(1000)
def test_no_turn_raises_and_calls_have_names_and_json(text: str, name: str) -> None:
    for tools in (TOOLS, ()):
        turn = read_turn(text, FORMATS[name], tools)
        assert all(call.name and isinstance(json.loads(call.arguments), object) for call in turn.calls)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_long_turns_are_read_in_linear_time(name: str) -> None:
    """A quadratic reader would exceed the time limit of the test."""
    beginning = BOTH[name][: max(1, len(BOTH[name]) // 3)]
    for piece in REPEATED:
        repeated = piece * (LENGTH // len(piece))
        read_turn(repeated, FORMATS[name], TOOLS)
        read_turn(beginning + repeated, FORMATS[name], TOOLS)
    read_turn(beginning * (LENGTH // len(beginning)), FORMATS[name], TOOLS)


@pytest.mark.timeout(60)
def test_long_rows_of_marks_are_divided_in_linear_time() -> None:
    for marks in MARKS:
        for piece in (marks.opens, marks.closes, marks.opens + marks.closes):
            divide(piece * (LENGTH // len(piece)))
