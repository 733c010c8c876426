"""Where thoughts, text and calls of a turn begin and end, whatever the format."""

from typing import Any

import pytest

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats import FORMATS, read_turn
from aworld_train.rollout.formats.call_format import after, call_of, joined, json_at, skip_space
from aworld_train.rollout.model import ParsedTurn
from tests.unit.rollout.formats.test_families import NOW, TOOLS

CALL = f"<tool_call>{NOW}</tool_call>"
CALLS = [ToolCall("now", "{}")]


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (" a\n", ParsedTurn("a", "", [])),
        (f"a{CALL} b {CALL}\nc", ParsedTurn("a\nb\nc", "", CALLS * 2)),
        (f"<think>a</think>b{CALL}<think>c", ParsedTurn("b", "a\nc", CALLS, unfinished=True)),
        # The prompt had opened a thought: what stands before its end is part of it, calls included.
        (f"a{CALL}b</think>c{CALL}", ParsedTurn("c", "a\nb", CALLS)),
        ("a<think>b</think>c</think>d", ParsedTurn("d", "b\na\nc", [])),
        (f"a{CALL}<tool_call>b</tool_call>c{CALL}", ParsedTurn("a", "", CALLS, malformed=True)),
        (f"a<tool_call>{CALL}", ParsedTurn("a", "", [], malformed=True)),
    ],
)
def test_a_turn_is_divided_in_one_pass(text: str, turn: ParsedTurn) -> None:
    assert read_turn(text, FORMATS["hermes"], TOOLS) == turn


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[now()]", 1),
        ("[unknown()]", 1),
        ("x [now()]", 1),
        ("x [unknown()]", 0),
        ("x [now(1)]", 0),
        ("[f(1)] " * 19 + "[now()]", 1),
        ("[f(1)] " * 20 + "[now()]", 0),
        ("[now()] [now()] [unknown()]", 3),
    ],
)
def test_calls_without_marks_are_looked_for_in_a_few_places(text: str, calls: int) -> None:
    turn = read_turn(text, FORMATS["pythonic"], TOOLS)
    assert (len(turn.calls), turn.malformed) == (calls, False)
    assert calls or turn.content == text


@pytest.mark.parametrize(
    ("name", "arguments", "call_id", "call"),
    [
        (" a ", {"é": 1}, "x", ToolCall("a", '{"é": 1}', "x")),
        ("a", ' {"b": 1} ', 7, ToolCall("a", '{"b": 1}', "7")),
        ("a", '{"b": 1} c', None, ToolCall("a", '"{\\"b\\": 1} c"')),
        ("a", "[1]", "x" * 64, ToolCall("a", '"[1]"', "x" * 64)),
        ("a", None, "x" * 65, ToolCall("a", "null")),
        ("a", 1, "x y", ToolCall("a", "1")),
        ("a", [10**5000], "", None),
        (" ", {}, "", None),
        (5, {}, "", None),
    ],
)
def test_a_call_has_a_name_arguments_in_json_and_an_identifier_that_is_one(
    name: Any, arguments: Any, call_id: Any, call: ToolCall | None
) -> None:
    assert call_of(name, arguments, call_id) == call


def test_positions_are_those_after_spaces() -> None:
    assert [skip_space(" \na ", position) for position in (0, 2, 3)] == [2, 2, 4]
    assert json_at(' {"a": 1} b', 0) == ({"a": 1}, 9)
    assert json_at("x", 0) is json_at("[" * 100_000, 0) is None
    assert [after("a </b>", 1, *marks) for marks in (("</b>",), ("<", "</b>"), ("x", ""), ("x",))] == [
        6,
        3,
        2,
        None,
    ]
    assert joined([" a\n", " \n", "b"]) == "a\nb"
