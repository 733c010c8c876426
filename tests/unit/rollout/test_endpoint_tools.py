"""Names and parameters of tools that endpoints refuse are others there, and the tools' own everywhere else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.chat_episode import ChatEpisode
from aworld_train.rollout.chat_model import ChatAnswer, ChatModel
from aworld_train.rollout.endpoint_tools import fitted_names, fitted_tool
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.messages import ChatRequest
from aworld_train.rollout.model import SamplingParams

LONG = "a" * 65


class Calling(ChatModel):
    """A model that calls every tool that it gets."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: SamplingParams,
        max_tokens: int,
        *,
        use_tools: bool = True,
    ) -> ChatAnswer:
        self.messages = messages
        calls = tuple(ToolCall(tool["function"]["name"], "{}", "c") for tool in tools)
        return ChatAnswer("", "", calls, "tool_calls", 0, 0)


def test_names_that_endpoints_take_stay_and_others_become_names_of_their_own() -> None:
    names = ["fine", "files.read", "files/read", "files_read", LONG, f"{LONG}b", "ä", "naïve tool", "."]
    fitted = fitted_names(names)
    assert fitted["naïve tool"] == "na_ve_tool" and "fine" not in fitted and "files_read" not in fitted
    sent = [fitted.get(name, name) for name in names]
    assert len(set(sent)) == len(names)
    assert all(
        name.isascii() and name.replace("_", "").isalnum() and len(name) <= 64 for name in sent if name != "_"
    )


async def test_a_call_comes_back_under_the_tool_s_own_name_and_goes_out_again_under_the_other() -> None:
    model = Calling()
    tools = [{"type": "function", "function": {"name": name}} for name in ("fine", "files/read")]
    history = [
        Message("assistant", "", (ToolCall("files/read", "{}", "c"),)),
        Message("tool", "r", call_id="c", name="files/read"),
    ]
    episode = ChatEpisode(model, EpisodeLimits(1, 5, 5, SamplingParams(0.0, 1.0, -1)))
    answer = await episode.complete("agent", ChatRequest(history, tools))
    assert [call.name for call in answer.tool_calls] == ["fine", "files/read"]
    assert [model.messages[0].tool_calls[0].name, model.messages[1].name] == ["files_read", "files_read"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"type": "object", "properties": {}}),
        (
            {"type": "object", "properties": [], "required": []},
            {"type": "object", "properties": {}, "required": []},
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "anyOf": [{"properties": {"a": {}}}, {}]},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {
                "properties": {
                    "n": {"minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
                }
            },
            {"type": "object", "properties": {"n": {"exclusiveMinimum": 0, "maximum": 9}}},
        ),
    ],
)
def test_parameters_are_an_object_of_a_newer_draft(given: Any, expected: Any) -> None:
    tool = {"type": "function", "function": {"name": "t", "parameters": given}}
    assert fitted_tool(tool, {})["function"]["parameters"] == expected
