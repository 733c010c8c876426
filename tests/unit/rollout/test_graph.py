"""Which turn a request goes on from, and what becomes of the turns in rows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.rollout.graph import ConversationGraph, Node
from aworld_train.rollout.messages import Message
from aworld_train.rollout.model import SampledTokens, WeightVersions
from tests.properties import examples

contents = st.sampled_from(["a", "b"])
# What becomes of the history before it is asked: how many messages of an earlier one stay, and what is put behind.
steps = st.tuples(
    st.integers(0, 4), st.integers(0, 8), st.lists(contents, max_size=2), contents, st.booleans()
)


def path_keys(node: Node) -> tuple[Any, ...]:
    return tuple(key for each in node.path for key in each.keys)


def goes_on_from(turns: list[tuple[Any, Node]], keys: tuple[Any, ...], tools: Any) -> Node | None:
    """The same by its meaning, looking at all turns."""
    fitting = [
        (len(path_keys(node)), index, node)
        for index, (known, node) in enumerate(turns)
        if known == tools and path_keys(node) == keys[: len(path_keys(node))]
    ]
    return max(fitting, key=lambda found: found[:2])[2] if fitting else None


@given(st.lists(steps, max_size=12))
@examples(500)
def test_a_request_goes_on_from_the_deepest_and_newest_turn(plan: list[Any]) -> None:
    graph = ConversationGraph()
    histories: list[list[Message]] = [[Message("user", "start")]]
    turns: list[tuple[Any, Node]] = []
    for which, prefix_length, put, answer, tools in plan:
        earlier = histories[-1 - which % len(histories)]
        history = [*earlier[: max(1, len(earlier) - prefix_length)], *(Message("user", text) for text in put)]
        if history[-1].role == "assistant":
            history.append(Message("user", "and then?"))
        match = graph.match(history, tools)
        assert match.node is goes_on_from(turns, tuple(message.key for message in history), tools)
        context = match.context or graph.add_context(match, tools, [1])
        turn = graph.add_sampled(
            context, tools, Message("assistant", answer), SampledTokens([2], [-1.0], True)
        )
        turns.append((tools, turn))
        histories.append([*history, Message("assistant", answer)])


@pytest.mark.parametrize("known", [True, False])
def test_a_row_has_the_versions_of_the_weights_of_the_tokens_that_are_trained_in_it(known: bool) -> None:
    graph = ConversationGraph()

    def ask(history: list[Message], answer: str, first: int, last: int) -> list[Message]:
        match = graph.match(history, "")
        context = graph.add_context(match, "", [1])
        versions = WeightVersions(first, last) if known else None
        message = Message("assistant", answer)
        graph.add_sampled(context, "", message, SampledTokens([2, 3], [-1.0, -2.0], True, versions))
        return [*history, message, Message("user", "go on")]

    history = ask([Message("user", "start")], "a", 3, 3)
    ask(history, "b", 4, 6)
    ask(history, "c", 5, 5)
    first, second = graph.rows()
    assert (first.mask, second.mask) == ([1, 1, 0, 1, 1], [0, 0, 0, 1, 1])
    assert [row.versions for row in (first, second)] == ([(3, 6), (5, 5)] if known else [None, None])
    assert first.split_at(0).versions == first.versions


def test_what_a_prompt_has_beyond_its_limit_is_context_before_the_response() -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([Message("user", "start")], ""), "", [1, 2, 3])
    sampled = SampledTokens([4, 5], [-1.0, -2.0], True, WeightVersions(7, 7))
    graph.add_sampled(context, "", Message("assistant", "a"), sampled)
    [row] = graph.rows()
    assert row.split_at(3) == row
    assert row.split_at(1) == replace(
        row,
        prompt=[1],
        response=[2, 3, 4, 5],
        mask=[0, 0, 1, 1],
        logprobs=[0.0, 0.0, -1.0, -2.0],
        turns=[(2, 4)],
    )


@pytest.mark.parametrize(("tokens", "logprobs"), [([2, 3], [-1.0]), ([2], [-1.0, -2.0]), ([2], []), ([], [])])
def test_tokens_that_do_not_have_one_logprob_each_are_no_turn(
    tokens: list[int], logprobs: list[float]
) -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([Message("user", "start")], ""), "", [1])
    with pytest.raises(ValueError, match=f"{len(tokens)} sampled tokens came with {len(logprobs)} "):
        graph.add_sampled(context, "", Message("assistant", "a"), SampledTokens(tokens, logprobs, True))
    assert list(graph.nodes()) == [context]


def test_tokens_that_no_client_received_are_not_counted() -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([Message("user", "start")], ""), "", [1, 1, 1])
    turns = [
        graph.add_sampled(
            context, "", Message("assistant", text), SampledTokens([2] * size, [-1.0] * size, True)
        )
        for text, size in (("a", 10), ("b", 100))
    ]
    assert (graph.unique_tokens, graph.undelivered) == (113, 0)
    turns[1].received = False
    assert (graph.unique_tokens, graph.undelivered) == (13, 1)
    assert [row.leaf for row in graph.rows()] == turns[:1]


def test_a_wish_is_shown_once_in_a_conversation_and_again_where_it_changes() -> None:
    graph = ConversationGraph()
    history = [Message("user", "start")]
    shown = []
    for wish in ("", "short", "short", "long", "long", "", "long"):
        match = graph.match(history, "", wish)
        shown.append(match.is_wish_new)
        context = graph.add_context(match, "", [1])
        answer = Message("assistant", "a")
        graph.add_sampled(context, "", answer, SampledTokens([2], [-1.0], True))
        history += [answer, Message("user", "go on")]
    assert shown == [False, True, False, True, False, False, True]


def test_a_branch_is_where_it_leaves_the_newest_conversation_and_not_an_earlier_one() -> None:
    graph = ConversationGraph()

    def ask(*history: Message) -> None:
        context = graph.add_context(graph.match(history, ""), "", [1])
        graph.add_sampled(context, "", Message("assistant", "a"), SampledTokens([2], [-1.0], True))

    first, second, answer = Message("user", "first"), Message("user", "second"), Message("assistant", "a")
    ask(first)
    ask(second)
    assert graph.match([second, answer, Message("user", "go on")], "").branch is None
    point = graph.match([Message("user", "third")], "").branch
    assert point is not None
    assert (point.cause, point.message, point.recorded, point.sent) == ("new", 0, "second", "third")
    back = graph.match([first, answer, Message("user", "go on")], "").branch
    assert back is not None
    assert (back.cause, back.message, back.recorded, back.sent) == ("new", 0, "second", "first")
