"""A tool's result has the name of the tool that was called."""

import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway.contents import Content
from aworld_train.rollout.model_gateway.history import History


def test_a_result_is_of_the_tool_that_was_last_called_with_its_identifier() -> None:
    earlier = Message("assistant", "", (ToolCall("a", "{}", "1"), ToolCall("b", "{}", "")))
    history = History([earlier])
    history.add(Message("assistant", "x", reasoning="y"))
    for call in (ToolCall("c", "{}", "1"), ToolCall("d", "{}", "1"), ToolCall("e", "{}", "2")):
        history.add_call(call)
    for call_id, name in (("1", ""), ("", ""), ("3", ""), ("2", "given")):
        history.add_result(call_id, Content("r"), name)
    assert [message.name for message in history.messages[2:]] == ["d", "", "", "given"]
    assert history.complete("p")[1] == Message(
        "assistant",
        "x",
        (ToolCall("c", "{}", "1"), ToolCall("d", "{}", "1"), ToolCall("e", "{}", "2")),
        reasoning="y",
    )


def test_a_conversation_has_a_message() -> None:
    with pytest.raises(RequestRefused, match=r"^p must hold a message$") as caught:
        History().complete("p")
    assert (caught.value.code, caught.value.parameter) == ("invalid_value", "p")
