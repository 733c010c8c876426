"""The ReAct agent asks, calls, and ends where it must, and tells truly how far it came."""

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.react import play, shorten
from aworld_train.rollout.tool_record import UNANSWERED, ToolCounts
from aworld_train.rollout.tools import ToolResult
from tests.properties import examples
from tests.vision import image, png

SCHEMAS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
QUESTION = Message("user", "What is 1+1?")
ANSWER = Completion("2")


def asks(*arguments: str, content: str = "", **options: Any) -> Completion:
    calls = tuple(ToolCall("add", text, f"call{i}") for i, text in enumerate(arguments))
    return Completion(content, tool_calls=calls, finish_reason="tool_calls", **options)


@dataclass
class ScriptedConversation:
    """Answers ``completions`` in order; one that is an exception is raised."""

    completions: list[Completion | Exception]
    requests: list[ChatRequest] = field(default_factory=list)

    async def complete(self, request: ChatRequest) -> Completion:
        await asyncio.sleep(0)
        self.requests.append(ChatRequest(list(request.messages), request.tools))
        answer = self.completions[len(self.requests) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class ScriptedTools:
    """Gives ``answers`` in order; an answer that is an exception is raised."""

    answers: list[ToolResult | Exception]
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        await asyncio.sleep(0)
        self.called.append((name, arguments))
        answer = self.answers[len(self.called) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Game:
    """One episode of the ReAct agent and all that took part in it."""

    completions: list[Completion | Exception]
    answers: list[ToolResult | Exception] = field(default_factory=list)
    max_turns: int = 10
    max_chars: int = 1000
    with_images: bool = False
    counts: ToolCounts = field(default_factory=ToolCounts)

    def __post_init__(self) -> None:
        self.conversation = ScriptedConversation(self.completions)
        self.tools = ScriptedTools(self.answers)

    async def play(self) -> bool:
        return await play(
            self.conversation,
            self.tools,
            SCHEMAS,
            [QUESTION],
            self.counts,
            max_turns=self.max_turns,
            max_result_chars=self.max_chars,
            **({"with_images": True} if self.with_images else {}),
        )

    @property
    def results(self) -> list[str]:
        """What the model was told last."""
        return [m.content for m in self.conversation.requests[-1].messages if m.role == "tool"]


arguments = st.one_of(
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2).map(json.dumps),
    st.sampled_from(["", "{", "[1]", "null", "3", '"text"', '{"a": NaN']),
)
completions = st.one_of(
    st.lists(arguments, min_size=1, max_size=3).map(lambda written: asks(*written)),
    st.lists(arguments, min_size=1, max_size=3).map(lambda written: asks(*written, malformed=True)),
    st.just(ANSWER),
    st.just(Completion("cut", finish_reason="length")),
    st.just(RequestRefused("no more")),
)
results = st.one_of(
    st.builds(ToolResult, st.text(max_size=60), st.booleans()), st.just(EnvironmentLost("gone"))
)


@examples(300)
@given(
    st.lists(completions, min_size=7, max_size=7),
    st.lists(results, min_size=21, max_size=21),
    st.integers(1, 7),
)
def test_every_request_is_the_one_before_with_what_the_model_said_and_its_tools_answered(
    script: list[Completion | Exception], answers: list[ToolResult | Exception], max_turns: int
) -> None:
    game = Game(script, answers, max_turns)
    unfinished, raised = False, None
    try:
        unfinished = asyncio.run(game.play())
    except (RequestRefused, EnvironmentLost) as error:
        raised = error
    requests = game.conversation.requests
    assert requests[0].messages == [QUESTION]
    assert 1 <= len(requests) <= max_turns
    for number, (before, after) in enumerate(pairwise(requests)):
        completion = script[number]
        assert isinstance(completion, Completion)
        size = len(before.messages)
        assert after.messages[:size] == before.messages
        assert after.messages[size] == completion.message
        new_messages = after.messages[size + 1 :]
        assert [(m.role, m.call_id, m.name) for m in new_messages] == [
            ("tool", c.call_id, "add") for c in completion.tool_calls
        ]
        assert not completion.malformed
    last = script[len(requests) - 1]
    if unfinished:
        assert len(requests) == max_turns
        assert isinstance(last, Completion)
        assert last.tool_calls
    elif raised is None:
        assert isinstance(last, Completion)
        assert last.finish_reason != "tool_calls" or last.malformed
    assert game.counts.errors <= game.counts.calls
    assert len(game.tools.called) <= game.counts.calls


async def test_a_tool_is_called_and_the_model_goes_on_from_its_result() -> None:
    game = Game([asks('{"number": 7}', content="So"), ANSWER], [ToolResult("8", False)])
    assert await game.play() is False
    assert game.tools.called == [("add", {"number": 7})]
    assert game.conversation.requests[1].messages == [
        QUESTION,
        Message("assistant", "So", (ToolCall("add", '{"number": 7}', "call0"),)),
        Message("tool", "8", call_id="call0", name="add"),
    ]
    assert game.conversation.requests[1].tools == SCHEMAS


async def test_calls_beside_one_that_cannot_be_read_are_not_made() -> None:
    game = Game([asks("{}", malformed=True)])
    assert await game.play() is False
    assert game.tools.called == []


async def test_a_call_in_the_last_turn_is_not_made() -> None:
    game = Game([asks("{}"), asks("{}")], [ToolResult("8", False)], max_turns=2)
    assert await game.play() is True
    assert len(game.tools.called) == 1


async def test_a_lost_environment_is_raised_and_what_was_called_is_counted() -> None:
    game = Game([asks("{}", "{}", "{}")], [ToolResult("8", False), EnvironmentLost("the server is gone")])
    with pytest.raises(EnvironmentLost, match="the server is gone"):
        await game.play()
    assert (game.counts.calls, game.counts.errors) == (2, 0)


async def test_each_call_is_recorded_with_its_times_and_its_answer_or_that_none_came() -> None:
    answers = [ToolResult("8", True, replayed=True), ToolResult("9", False)]
    game = Game([asks('{"a": 1}', "["), asks("{}"), asks("{}")], [*answers, EnvironmentLost("gone")])
    began_at, began = time.time(), time.monotonic()
    with pytest.raises(EnvironmentLost):
        await game.play()
    seconds, ended_at = time.monotonic() - began, time.time()
    records = game.counts.records
    no_object = "Error: the arguments of add must be a JSON object"
    assert [replace(record, began=0.0, seconds=0.0) for record in records] == [
        ToolCallRecord("add", '{"a": 1}', "8", True, 0.0, 0.0, True, "call0"),
        ToolCallRecord("add", "[", no_object, True, 0.0, 0.0, False, "call1"),
        ToolCallRecord("add", "{}", "9", False, 0.0, 0.0, False, "call0"),
        ToolCallRecord("add", "{}", UNANSWERED, True, 0.0, 0.0, False, "call0"),
    ]
    assert all(began_at <= record.began <= ended_at and record.seconds >= 0 for record in records)
    assert sum(record.seconds for record in records[:3]) <= game.counts.seconds
    assert sum(record.seconds for record in records) <= seconds >= game.counts.seconds
    assert (game.counts.calls, game.counts.errors) == (4, 2)


@pytest.mark.parametrize("with_images", [True, False])
async def test_images_are_shown_where_the_model_takes_them_and_a_result_has_some(with_images: bool) -> None:
    picture = {"type": "image", "data": base64.b64encode(png()).decode()}
    raw = {"content": [picture, {"type": "text", "text": "seen"}]}
    raws = [raw, {"message": "no"}, None, ["content"]]
    answers: list[ToolResult | Exception] = [ToolResult("text", False, raw) for raw in raws]
    game = Game([asks(*["{}"] * 4), ANSWER], answers, max_chars=4, with_images=with_images)
    await game.play()
    results = game.conversation.requests[-1].messages[2:]
    shown = [("seen", (image(0),)), *[("text", ())] * 3] if with_images else [("text", ())] * 4
    assert [(result.content, result.images) for result in results] == shown


async def test_errors_of_tools_are_results_and_are_counted() -> None:
    answers = [
        ToolResult("8", False),
        ToolResult("Error: division by zero", True),
        ToolResult("Error: late", True),
    ]
    game = Game([asks("{}", "{}", "{}"), ANSWER], list(answers))
    await game.play()
    assert (game.counts.calls, game.counts.errors) == (3, 2)
    assert game.results == [answer.text for answer in answers]


@pytest.mark.parametrize(
    "written",
    ["", "{", "[1]", "null", "3", '"{}"', "[" * 100_000, '{"n": ' + "9" * 5000 + "}"],
    ids=lambda written: written[:8],
)
async def test_arguments_that_are_no_object_are_an_error_result_and_never_reach_a_tool(written: str) -> None:
    game = Game([asks(written), ANSWER])
    await game.play()
    assert game.tools.called == []
    assert (game.counts.calls, game.counts.errors) == (1, 1)
    assert "must be a JSON object" in game.results[0]


@pytest.mark.parametrize(
    ("length", "text"), [(100, "xxxxx\n[... 90 characters left out ...]\nxxxxx"), (10, "x" * 10)]
)
async def test_a_result_is_shortened_where_it_is_too_long(length: int, text: str) -> None:
    game = Game([asks("{}"), ANSWER], [ToolResult("x" * length, False)], max_chars=10)
    await game.play()
    assert game.results == [text]


@given(st.text(max_size=300), st.integers(2, 120))
@example("x" * 10, 10)
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        half = limit // 2
        assert short.startswith(text[:half])
        assert short.endswith(text[-half:])
        assert f"{len(text) - 2 * half} characters left out" in short
