"""Two messages mean the same if the model was shown the same, whatever a client did to their form."""

import pytest

from aworld_train.episode.message import Message, canonical_arguments
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.graph import MAX_BRANCH_POINTS, ConversationGraph, branch_point
from aworld_train.rollout.model import SampledTokens

USER = Message("user", "1+1?")


def calling(arguments: str, reasoning: str = "") -> Message:
    return Message("assistant", "", (ToolCall("add", arguments, "c1"),), reasoning=reasoning)


def test_a_message_of_a_dataset_is_read_with_its_calls_and_the_call_that_it_answers() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    asks = Message.read({"role": "assistant", "content": None, "tool_calls": [call]})
    assert asks == Message("assistant", "", (ToolCall("add", '{"a": 1}'),))
    answers = {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"}
    assert Message.read(answers) == Message("tool", "2", call_id="c1", name="add")
    assert Message.read(answers).for_template() == answers
    assert Message.read({"role": "user", "content": "1+1?"}) == USER


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_white_space_that_the_model_was_shown_counts(role: str) -> None:
    assert Message(role, "a\n").key != Message(role, "a").key  # type: ignore[arg-type]


def test_white_space_around_an_answer_does_not_count() -> None:
    assert Message("assistant", "\na ").key == Message("assistant", "a").key


@pytest.mark.parametrize(
    ("written", "sent_back"),
    [
        ('{"a": 1.0}', '{"a":1}'),
        ('{"a": -0.0}', '{"a":0}'),
        ('{"a": 1e3, "b": [2.50]}', '{"b":[2.5],"a":1000}'),
        ('{"a": 1e21}', '{"a":1e+21}'),
        ('{"a": 12345678901234567890}', '{"a":12345678901234567000}'),
    ],
)
def test_numbers_are_those_that_javascript_writes(written: str, sent_back: str) -> None:
    assert calling(written).key == calling(sent_back).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1.5}', '{"a": 1}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"a": 1}', '{"a": "1"}'),
    ],
)
def test_other_values_are_other_arguments(one: str, other: str) -> None:
    assert calling(one).key != calling(other).key


@pytest.mark.parametrize("arguments", ["9" * 5000, "9" * 400, "[" * 100_000, '{"a": 1e999}', "no JSON"])
def test_any_text_has_a_canonical_form(arguments: str) -> None:
    assert canonical_arguments(f" {arguments} ") == canonical_arguments(arguments)


@pytest.mark.parametrize(
    ("sent", "continues"), [("", True), ("hm", True), ("hm\n", True), ("ho", False), ("hm and more", False)]
)
def test_reasoning_that_is_sent_back_must_be_the_recorded_one(sent: str, continues: bool) -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([USER], ""), "", [1])
    turn = graph.add_sampled(context, "", calling("{}", "hm"), SampledTokens([2], [-1.0], True))
    result = Message("tool", "2", call_id="c1")
    match = graph.match([USER, calling("{ }", sent), result], "")
    assert (match.node is turn) is continues
    assert (match.branch is None) is continues
    if match.branch is not None:
        assert (match.branch.cause, match.branch.message) == ("rewritten", 1)


def test_a_client_that_completes_a_turn_with_its_stop_text_continues_it() -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([USER], ""), "", [1])
    turn = graph.add_sampled(
        context, "", Message("assistant", "x"), SampledTokens([2], [-1.0], False), "</code>"
    )
    for text, continues in (("x</code>", True), ("x", True), ("x</code>y", False)):
        match = graph.match([USER, Message("assistant", text), USER], "")
        assert (match.node is turn) is continues


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        ([Message("user", "2+2?")], ("new", 0, "user", 0, "1+1?", "2+2?")),
        ([USER, Message("assistant", "sO"), USER], ("rewritten", 1, "assistant", 1, "so", "sO")),
        (
            [USER, Message("assistant", "so"), Message("user", "1+1? ")],
            ("edited", 2, "user", 4, "1+1?", "1+1? "),
        ),
        (
            [USER, Message("assistant", "so"), Message("tool", "1+1?")],
            ("edited", 2, "tool", 0, "user: 1+1?", "tool: 1+1?"),
        ),
        ([USER], ("resampled", 1, "assistant", 0, "so", "")),
    ],
)
def test_a_branch_has_its_message_and_its_first_character(
    sent: list[Message], place: tuple[str, int, str, int, str, str]
) -> None:
    point = branch_point([USER, Message("assistant", "so"), USER], sent, None)
    assert (point.cause, point.message, point.role, point.position, point.recorded, point.sent) == place


def test_a_branch_shows_few_characters_and_few_branches_are_shown() -> None:
    long = "x" * 100_000
    recorded, sent = [Message("user", long + "a" * 1000)], [Message("user", long + "b" * 1000)]
    point = branch_point(recorded, sent, None)
    assert point.position == len(long)
    assert (point.recorded, point.sent) == ("x" * 30 + "a" * 90, "x" * 30 + "b" * 90)
    graph = ConversationGraph()
    for _ in range(MAX_BRANCH_POINTS + 5):
        graph.count_branch(point)
    assert graph.branches == {"new": MAX_BRANCH_POINTS + 5}
    assert len(graph.branch_points) == MAX_BRANCH_POINTS
