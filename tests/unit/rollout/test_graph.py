"""Which turn a request goes on from, and what becomes of the turns in rows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.message import Message
from aworld_train.rollout.graph import MAX_BRANCH_POINTS, ConversationGraph, Node, Row
from aworld_train.rollout.model import SampledTokens, WeightVersions
from tests.properties import examples
from tests.vision import image

QUESTION, ANSWER, GO_ON = Message("user", "start"), Message("assistant", "a"), Message("user", "go on")
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
        version_parts=((2, 7),),
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
    assert graph.match([Message("user", "third"), answer, GO_ON], "").node is None
    ask(first, answer, GO_ON)
    edited = graph.match([first, answer, Message("user", "stop")], "").branch
    assert edited is not None
    assert (edited.cause, edited.message, edited.recorded, edited.sent) == ("edited", 2, "go on", "stop")


def ask(
    graph: ConversationGraph, *history: Message, answer: Message = ANSWER, tools: Any = "", wish: str = ""
) -> Node:
    """The turn that answers a history."""
    match = graph.match(history, tools, wish)
    context = match.context or graph.add_context(match, tools, [1])
    return graph.add_sampled(context, tools, answer, SampledTokens([2], [-1.0], True))


def test_a_node_knows_what_stands_before_it() -> None:
    graph = ConversationGraph()
    photo, drawing = image(0), image(0, color="blue")
    context = graph.add_context(graph.match([changed(QUESTION, images=(photo,))], "", "short"), "", [1, 2, 3])
    sampled = SampledTokens([4, 5], [-1.0, -2.0], False, WeightVersions(7, 8))
    turn = graph.add_sampled(context, "", ANSWER, sampled, "STOP")
    history = [*context.messages, ANSWER, changed(GO_ON, images=(drawing,)), QUESTION]
    later = graph.add_context(graph.match(history, "", "short"), "", [6])
    nodes = [context, turn, later]
    assert list(graph.nodes()) == nodes and later.path == nodes
    assert [node.parent for node in nodes] == [None, *nodes[:2]]
    assert [node.messages for node in nodes] == [(history[0],), (ANSWER,), tuple(history[2:])]
    assert [node.path_tokens for node in nodes] == [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    assert [(node.token_count, node.length) for node in nodes] == [(3, 3), (2, 5), (1, 6)]
    assert [node.images for node in nodes] == [[photo], [photo], [photo, drawing]]
    assert all(node.root is context and node.wish == "short" for node in nodes)
    assert [node.sampled for node in nodes] == [False, True, False]
    assert [(node.ended, node.pending) for node in nodes] == [(True, 0), (False, 0), (True, 0)]
    assert (turn.logprobs, turn.versions, turn.stop) == ([-1.0, -2.0], (7, 8), "STOP")


def test_tokens_that_an_endpoint_counts_have_lengths_and_no_row() -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([QUESTION], ""), "", [])
    context.count(10)
    turn = graph.add_answer(context, "", ANSWER, 5, ended=False)
    later = graph.add_context(graph.match([QUESTION, ANSWER, GO_ON], ""), "", [])
    lengths = []
    for prompt_tokens in (25, 15, 12):  # an endpoint may count fewer than there were before
        later.count(prompt_tokens)
        lengths.append((later.token_count, later.length))
    assert (turn.parent, turn.token_count, turn.length, turn.ended) == (context, 5, 15, False)
    assert lengths == [(10, 25), (0, 15), (0, 15)]
    assert (context.length, graph.unique_tokens, graph.rows()) == (10, 15, [])


def test_rows_hold_each_path_and_train_each_token_once() -> None:
    graph = ConversationGraph()
    look = changed(QUESTION, images=(image(0),))
    history: list[Message] = [look]
    leaves = []
    for number, (kept, tokens) in enumerate([(1, [10]), (3, [11]), (3, [12])]):
        match = graph.match(history[:kept], "")
        context = match.context or graph.add_context(match, "", [number, number])
        sampled = SampledTokens([*tokens, 0], [-float(tokens[0]), -0.5], True, WeightVersions(number, number))
        leaves.append(graph.add_sampled(context, "", Message("assistant", str(number)), sampled))
        history = [*history[:kept], Message("assistant", str(number)), GO_ON]
    assert graph.rows() == [
        Row(
            [0, 0],
            [10, 0, 1, 1, 11, 0],
            [1, 1, 0, 0, 1, 1],
            [-10.0, -0.5, 0.0, 0.0, -11.0, -0.5],
            [(0, 2), (4, 6)],
            WeightVersions(0, 1),
            list(look.images),
            leaves[1],
            ((0, 0), (4, 1)),
        ),
        Row(
            [0, 0],
            [10, 0, 1, 1, 12, 0],
            [0, 0, 0, 0, 1, 1],
            [0.0, 0.0, 0.0, 0.0, -12.0, -0.5],
            [(0, 2), (4, 6)],
            WeightVersions(2, 2),
            list(look.images),
            leaves[2],
            ((4, 2),),
        ),
    ]


def test_a_turn_that_no_client_received_is_in_a_row_once_it_is_continued() -> None:
    graph = ConversationGraph()
    first = ask(graph, QUESTION)
    second = ask(graph, QUESTION, ANSWER, GO_ON)
    second.received = False
    assert [row.leaf for row in graph.rows()] == [first]
    graph.add_context(graph.match([QUESTION, ANSWER, GO_ON, ANSWER, GO_ON], ""), "", [1])
    assert [row.leaf for row in graph.rows()] == [second]


def test_contexts_are_shared_where_history_tools_wish_and_tokens_are_equal() -> None:
    graph = ConversationGraph()
    match = graph.match([QUESTION], "tools")
    context = graph.add_context(match, "tools", [1])
    assert graph.add_context(match, "tools", [1]) is context
    assert graph.match([QUESTION], "tools").context is context
    other_tokens = graph.add_context(match, "tools", [2])
    other_tools = ask(graph, QUESTION, tools="others").parent
    other_wish = ask(graph, QUESTION, tools="tools", wish="short").parent
    other_text = ask(graph, GO_ON, tools="tools").parent
    roots = [node for node in graph.nodes() if node.parent is None]
    assert roots == [context, other_tokens, other_tools, other_wish, other_text]


def test_the_deepest_turn_is_continued_though_another_is_newer() -> None:
    graph = ConversationGraph()
    ask(graph, QUESTION)
    deepest = ask(graph, QUESTION, ANSWER, GO_ON)
    newest = ask(graph, QUESTION)
    match = graph.match([QUESTION, ANSWER, GO_ON, ANSWER, GO_ON], "")
    assert (match.node, match.new) == (deepest, (GO_ON,))
    match = graph.match([QUESTION, ANSWER, QUESTION], "")
    assert (match.node, match.new, match.branch) == (newest, (QUESTION,), None)


def test_the_newest_of_equal_turns_is_continued_though_it_is_in_an_older_conversation() -> None:
    graph = ConversationGraph()
    for wish in ("", "short"):
        ask(graph, QUESTION, wish=wish)
    newest = ask(graph, QUESTION)
    for answer in (ANSWER, Message("assistant", " a ")):
        assert graph.match([QUESTION, answer, GO_ON], "").node is newest


@pytest.mark.parametrize("wishes", [("", ""), ("", "short")])
def test_the_newest_of_equal_turns_is_continued_after_another_conversation(wishes: tuple[str, str]) -> None:
    graph = ConversationGraph()
    *_, newest = [ask(graph, QUESTION, wish=wish) for wish in wishes]
    ask(graph, GO_ON)
    for new in ((), (GO_ON,)):
        match = graph.match([QUESTION, ANSWER, *new], "")
        assert (match.node, match.new) == (newest, new)


@pytest.mark.parametrize(
    ("sent", "continues"),
    [("", True), ("hm", True), (" hm\n", True), ("hm, so", False)],
)
@pytest.mark.parametrize("is_newest", [True, False])
def test_a_turn_is_continued_without_its_reasoning_and_not_with_another(
    sent: str, continues: bool, is_newest: bool
) -> None:
    graph = ConversationGraph()
    turn = ask(graph, QUESTION, answer=changed(ANSWER, reasoning="hm"))
    if not is_newest:
        ask(graph, GO_ON)
    match = graph.match([QUESTION, changed(ANSWER, reasoning=sent), GO_ON], "")
    assert match.node is (turn if continues else None)
    if is_newest:
        assert (match.branch and match.branch.cause) == (None if continues else "rewritten")


@pytest.mark.parametrize(
    ("answer", "continues"), [("a", True), ("aSTOP", True), ("a STOP", False), ("aHALT", False)]
)
def test_a_turn_is_continued_with_and_without_its_stop_text(answer: str, continues: bool) -> None:
    graph = ConversationGraph()
    context = graph.add_context(graph.match([QUESTION], ""), "", [1])
    turn = graph.add_sampled(context, "", ANSWER, SampledTokens([2], [-1.0], False), "STOP")
    match = graph.match([QUESTION, Message("assistant", answer), GO_ON], "")
    assert match.node is (turn if continues else None)


def test_other_tools_begin_another_conversation_and_are_its_cause() -> None:
    graph = ConversationGraph()
    assert graph.match([QUESTION], "add").branch is None, "there is nothing that it could have continued"
    ask(graph, QUESTION, tools="add")
    match = graph.match([QUESTION, ANSWER, GO_ON], "look")
    assert match.node is None
    assert match.branch == BranchPoint("tools", 0, "", 0, "add", "look")


def test_every_branch_is_counted_and_the_first_ones_are_described() -> None:
    graph = ConversationGraph()
    points = [BranchPoint("edited", number, "user", 0, "", "") for number in range(MAX_BRANCH_POINTS + 2)]
    for point in points:
        graph.count_branch(point)
    assert graph.branches == {"edited": MAX_BRANCH_POINTS + 2}
    assert graph.branch_points == points[:MAX_BRANCH_POINTS]


def test_a_cut_turn_has_the_versions_of_the_tokens_that_are_left() -> None:
    whole = SampledTokens([1, 2, 3], [-1.0] * 3, True, WeightVersions(4, 7), (), ((0, 4), (1, 5), (2, 7)))
    assert whole.cut_at(2) == SampledTokens(
        [1, 2], [-1.0] * 2, False, WeightVersions(4, 5), (), ((0, 4), (1, 5))
    )
    assert SampledTokens([1, 2], [-1.0] * 2, True, WeightVersions(4, 4)).cut_at(1).versions == (4, 4)
