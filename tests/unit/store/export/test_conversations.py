"""A graph of nodes is taken apart into conversations, each with its own messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.store.content import StoredAgent
from aworld_train.store.export.conversations import (
    arguments_object,
    conversation_ends,
    digest_part,
    embedded_part,
    messages_of,
    new_messages,
    openai_message,
)
from tests.stored_episodes import branching_content, context_node, sampled_node

PNG = b"\x89PNG\r\n\x1a\n"


def test_each_branch_is_a_conversation_and_a_turn_that_nobody_received_is_in_none() -> None:
    (agent,) = branching_content().agents
    assert conversation_ends(agent) == [3, 5]
    last = [messages_of(agent, agent.path(end))[-1].content for end in conversation_ends(agent)]
    assert last == ["It is 6.", "It is 7."]


def test_new_messages_are_those_after_the_last_turn() -> None:
    (agent,) = branching_content().agents
    assert [message.role for message in new_messages(agent, 1)] == ["system", "user"]
    assert [message.content for message in new_messages(agent, 5)] == ["7"]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[1]",
        '"a"',
        "",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 99999999999999999999}',
        '{"a": ' + "[" * 40 + "]" * 40 + "}",
        "[" * 100_000,
        "9" * 10_000,
        '{"a": "\\ud83d"}',
        '{"\\udc00": 1}',
    ],
)
def test_arguments_that_most_readers_refuse_stay_a_text(text: str) -> None:
    assert arguments_object(text) is None
    message = Message("assistant", "", (ToolCall("f", text),))
    (call,) = openai_message(message, digest_part)["tool_calls"]
    assert call["function"]["arguments"] == text


@given(st.dictionaries(st.text(), st.integers(-(2**63) + 1, 2**63 - 1) | st.text() | st.booleans()))
def test_arguments_are_objects(value: dict[str, object]) -> None:
    assert arguments_object(json.dumps(value)) == value


def test_images_stand_where_they_were() -> None:
    message = Message("user", "Look: and here", images=(Image(5, "a"), Image(14, "b")))
    assert message.parts(digest_part) == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "sha256": "a"},
        {"type": "text", "text": " and here"},
        {"type": "image", "sha256": "b"},
    ]
    part = embedded_part({"a": PNG}.get)
    assert part(Image(0, "a"))["image_url"] == {"url": "data:image/png;base64,iVBORw0KGgo="}
    assert part(Image(0, "b")) == {"type": "text", "text": "[an image that is not kept]"}


def test_a_conversation_that_ends_with_a_result_ends_with_the_turn_before() -> None:
    nodes = (
        context_node(-1, [1], Message("user", "Go")),
        sampled_node(0, "", [2]),
        context_node(1, [3], Message("tool", "x")),
    )
    assert conversation_ends(StoredAgent("a", nodes)) == [1]
