"""An episode holds exactly what the model was given and sampled, whatever the model writes and the tools answer."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_train.rollout.outcome import EnvironmentLost, EpisodeFailure, Outcome
from aworld_train.rollout.path import TokenPath
from aworld_train.rollout.react import Episode, Limits, Message, ParsedTurn, Sampled, ToolCall, play, shorten
from aworld_train.rollout.tools import ToolResult

SCHEMAS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
MESSAGES: list[Message] = [{"role": "user", "content": "What is 1+1?"}]
NO_LIMITS = Limits(
    max_turns=100, max_prompt_tokens=1000, max_response_tokens=10_000, max_tool_result_chars=1000
)


@dataclass(frozen=True)
class Turn:
    """What the scripted model does when it is called: the tokens it samples and what they mean."""

    tokens: list[int]
    logprobs: list[float]
    calls: list[ToolCall] = field(default_factory=list)
    malformed: bool = False
    ended: bool = True


@dataclass
class ScriptedModel:
    """Plays ``turns`` and keeps what it was given. A tool message becomes the tokens of ``result_tokens``."""

    turns: list[Turn]
    prompt: list[int]
    result_tokens: list[list[int]]
    given: list[list[int]] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)
    rendered: list[tuple[list[Message], list[Message]]] = field(default_factory=list)

    async def generate(self, tokens: list[int], max_tokens: int) -> Sampled:
        await asyncio.sleep(0)
        self.given.append(list(tokens))
        self.room.append(max_tokens)
        turn = self.turns[len(self.given) - 1]
        # An engine never gives more than it was asked for.
        cut = len(turn.tokens) > max_tokens
        self.sampled.append(
            Sampled(turn.tokens[:max_tokens], turn.logprobs[:max_tokens], turn.ended and not cut)
        )
        return self.sampled[-1]

    async def parse(self, tokens: list[int]) -> ParsedTurn:
        turn = self.turns[len(self.given) - 1]
        assert tokens == turn.tokens
        return ParsedTurn(self.text(tokens), turn.calls, turn.malformed)

    async def render(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        assert (messages, tools) == (MESSAGES, SCHEMAS)
        return list(self.prompt)

    async def render_results(
        self, before: list[Message], results: list[Message], tokens: list[int], tools: list[dict[str, Any]]
    ) -> list[int]:
        self.rendered.append((list(before), list(results)))
        return list(self.result_tokens[len(self.rendered) - 1])

    def text(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))


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


def a_call(number: int = 1) -> ToolCall:
    return ToolCall("add", json.dumps({"number": number}))


def played(
    model: ScriptedModel, answers: list[ToolResult | Exception] | None = None, limits: Limits = NO_LIMITS
) -> tuple[Episode, ScriptedTools]:
    tools, episode = ScriptedTools(answers or []), Episode(TokenPath([]))
    asyncio.run(play(model, tools, SCHEMAS, MESSAGES, limits, episode))
    return episode, tools


token_ids = st.lists(st.integers(0, 50_000), min_size=1, max_size=8)
arguments = st.one_of(
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2).map(json.dumps),
    st.sampled_from(["", "{", "[1]", "null", "3", '"text"', '{"a": NaN']),
)
calls = st.lists(st.builds(ToolCall, st.sampled_from(["add", "nothing"]), arguments), max_size=3)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    tokens = draw(token_ids)
    logprobs = draw(
        st.lists(st.floats(-30, 0, allow_nan=False, width=32), min_size=len(tokens), max_size=len(tokens))
    )
    return Turn(
        tokens,
        logprobs,
        draw(calls),
        malformed=draw(st.sampled_from([False] * 7 + [True])),
        ended=draw(st.sampled_from([True] * 7 + [False])),
    )


results = st.one_of(
    st.builds(ToolResult, st.text(max_size=60), st.booleans()),
    st.just(EnvironmentLost("gone")),
    st.just(EpisodeFailure("the engine failed")),
)
limits = st.builds(
    Limits,
    max_turns=st.integers(1, 6),
    max_prompt_tokens=st.sampled_from([3, 100]),
    max_response_tokens=st.integers(1, 60),
    max_tool_result_chars=st.sampled_from([20, 1000]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(turns(), min_size=7, max_size=7),
    token_ids,
    st.lists(token_ids, min_size=7, max_size=7),
    st.lists(results, min_size=21, max_size=21),
    limits,
)
def test_whatever_happens_the_path_is_what_the_model_saw_and_sampled(
    script: list[Turn],
    prompt: list[int],
    result_tokens: list[list[int]],
    answers: list[ToolResult | Exception],
    given_limits: Limits,
) -> None:
    model, tools = ScriptedModel(script, prompt, result_tokens), ScriptedTools(answers)
    episode = Episode(TokenPath([]))
    raised: EpisodeFailure | None = None
    try:
        asyncio.run(play(model, tools, SCHEMAS, MESSAGES, given_limits, episode))
    except EpisodeFailure as failure:
        raised = failure
    path = episode.path

    # Mask 1 is exactly what was sampled, in order, each token with its own log-probability.
    assert path.sampled == [token for s in model.sampled for token in s.tokens]
    assert [p for p, trained in zip(path.logprobs, path.mask, strict=True) if trained] == [
        p for s in model.sampled for p in s.logprobs
    ]
    assert all(p == 0.0 for p, trained in zip(path.logprobs, path.mask, strict=True) if not trained)
    assert len(path.response) == len(path.mask) == len(path.logprobs)

    # Every input of the model is the prompt and a beginning of the response, in which it is followed by the turn.
    assert path.prompt == prompt
    for seen, sampled, room in zip(model.given, model.sampled, model.room, strict=True):
        before = len(seen) - len(prompt)
        assert seen == prompt + path.response[:before]
        assert path.response[before : before + len(sampled.tokens)] == sampled.tokens
        assert room == given_limits.max_response_tokens - before > 0
    # What lies between two turns is what the tool results were rendered to, and nothing else was put in.
    assert [t for t, trained in zip(path.response, path.mask, strict=True) if not trained] == [
        token for tokens in result_tokens[: max(len(model.given) - 1, 0)] for token in tokens
    ]
    assert len(path.response) <= given_limits.max_response_tokens

    # Each assistant message in the history is a turn that the model sampled; each tool message answers a call of it.
    for index, (before_messages, answered) in enumerate(model.rendered):
        spoken = [m["content"] for m in before_messages if m["role"] == "assistant"]
        assert spoken == [model.text(s.tokens) for s in model.sampled[: index + 1]]
        assert [m["name"] for m in answered] == [c.name for c in script[index].calls]
        assert all(m["role"] == "tool" for m in answered)

    # It is told truly how far it came, also if it was stopped in the middle.
    assert episode.turns == len(model.sampled) <= given_limits.max_turns
    assert episode.turn_texts == [model.text(s.tokens) for s in model.sampled]
    assert (episode.outcome is None) == (raised is not None)
    assert episode.tool_errors <= episode.tool_calls
    if episode.outcome is Outcome.answered:
        last = script[episode.turns - 1]
        assert not last.calls
        assert not last.malformed
    if episode.outcome is Outcome.malformed_call:
        assert script[episode.turns - 1].malformed
    if episode.outcome is Outcome.max_turns:
        assert episode.turns == given_limits.max_turns


def test_an_answer_ends_the_episode() -> None:
    episode, _ = played(ScriptedModel([Turn([1, 2], [-0.1, -0.2])], [9], []))
    assert episode.outcome is Outcome.answered
    assert (episode.path.prompt, episode.path.response, episode.path.mask) == ([9], [1, 2], [1, 1])


def test_a_tool_is_called_and_the_model_goes_on_from_its_result() -> None:
    model = ScriptedModel([Turn([1], [-0.5], [a_call(7)]), Turn([4], [-0.25])], [9], [[2, 3]])
    episode, tools = played(model, [ToolResult("8", False)])
    assert tools.called == [("add", {"number": 7})]
    assert model.rendered == [
        (
            [*MESSAGES, {"role": "assistant", "content": "1"}],
            [{"role": "tool", "name": "add", "content": "8"}],
        )
    ]
    assert episode.path.response == [1, 2, 3, 4]
    assert episode.path.mask == [1, 0, 0, 1]
    assert episode.path.logprobs == [-0.5, 0.0, 0.0, -0.25]
    assert episode.assistant_text == "1\n4"


def test_a_call_that_cannot_be_read_ends_the_episode_as_the_agents_own_doing() -> None:
    episode, tools = played(ScriptedModel([Turn([1], [0.0], [a_call()], malformed=True)], [9], []))
    assert episode.outcome is Outcome.malformed_call
    assert episode.outcome.trainable
    assert tools.called == []


def test_a_call_in_the_last_turn_is_not_made() -> None:
    model = ScriptedModel([Turn([1], [0.0], [a_call()])] * 2, [9], [[2]])
    limits = Limits(2, 1000, 1000, 1000)
    episode, tools = played(model, [ToolResult("8", False)] * 2, limits)
    assert episode.outcome is Outcome.max_turns
    assert len(tools.called) == 1
    assert episode.path.response == [1, 2, 1]


def test_a_prompt_that_is_too_long_is_not_played_and_not_cut() -> None:
    model = ScriptedModel([], list(range(11)), [])
    episode, _ = played(model, limits=Limits(5, 10, 1000, 1000))
    assert episode.outcome is Outcome.overlong
    assert episode.path.prompt == list(range(11))
    assert episode.path.response == []
    assert model.given == []


def test_a_turn_that_does_not_end_in_the_room_there_is_makes_the_episode_overlong() -> None:
    model = ScriptedModel([Turn([1, 2, 3, 4], [0.0] * 4)], [9], [])
    episode, _ = played(model, limits=Limits(5, 10, 3, 1000))
    assert episode.outcome is Outcome.overlong
    assert episode.path.response == [1, 2, 3]


@pytest.mark.parametrize("length", [3, 9])
def test_results_that_leave_no_room_for_a_turn_are_not_put_into_the_path(length: int) -> None:
    model = ScriptedModel([Turn([1, 2], [0.0] * 2, [a_call()])], [9], [[5] * length])
    episode, _ = played(model, [ToolResult("8", False)], Limits(5, 10, 5, 1000))
    assert episode.outcome is Outcome.overlong
    assert episode.path.response == [1, 2]


def test_results_that_leave_room_for_one_token_are_put_into_the_path() -> None:
    model = ScriptedModel([Turn([1, 2], [0.0] * 2, [a_call()]), Turn([7], [0.0])], [9], [[5] * 2])
    episode, _ = played(model, [ToolResult("8", False)], Limits(5, 10, 5, 1000))
    assert episode.outcome is Outcome.answered
    assert episode.path.response == [1, 2, 5, 5, 7]


def test_a_lost_environment_is_raised_and_leaves_the_episode_as_far_as_it_came() -> None:
    model = ScriptedModel([Turn([1], [-0.5], [a_call(), a_call(), a_call()])], [9], [])
    tools = ScriptedTools([ToolResult("8", False), EnvironmentLost("the server is gone")])
    episode = Episode(TokenPath([]))
    with pytest.raises(EnvironmentLost, match="the server is gone"):
        asyncio.run(play(model, tools, SCHEMAS, MESSAGES, NO_LIMITS, episode))
    assert episode.outcome is None
    assert (episode.turns, episode.tool_calls, episode.tool_errors) == (1, 2, 0)
    assert (episode.path.prompt, episode.path.response) == ([9], [1])


def test_an_episode_stopped_from_outside_leaves_the_episode_as_far_as_it_came() -> None:
    class Waiting(ScriptedTools):
        async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
            await asyncio.sleep(60)
            raise AssertionError

    async def stopped() -> Episode:
        episode = Episode(TokenPath([]))
        model = ScriptedModel([Turn([1, 2], [-0.5, -1.0], [a_call()])], [9], [])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await play(model, Waiting([]), SCHEMAS, MESSAGES, NO_LIMITS, episode)
        return episode

    episode = asyncio.run(stopped())
    assert (episode.turns, episode.tool_calls, episode.path.sampled) == (1, 1, [1, 2])
    assert episode.outcome is None


def test_errors_of_tools_and_their_timeouts_are_results_and_are_counted() -> None:
    model = ScriptedModel([Turn([1], [0.0], [a_call(), a_call(), a_call()]), Turn([4], [0.0])], [9], [[2]])
    answers = [
        ToolResult("8", False),
        ToolResult("Error: division by zero", True),
        ToolResult("Error: no answer within 60 seconds", True),
    ]
    episode, _ = played(model, list(answers))
    assert episode.outcome is Outcome.answered
    assert (episode.tool_calls, episode.tool_errors) == (3, 2)
    assert [m["content"] for m in model.rendered[0][1]] == [answer.text for answer in answers]


@pytest.mark.parametrize(
    "written",
    ["", "{", "[1]", "null", "3", '"{}"', "[" * 100_000, '{"n": ' + "9" * 5000 + "}"],
    ids=lambda written: written[:8],
)
def test_arguments_that_are_no_object_are_an_error_result_and_never_reach_a_tool(written: str) -> None:
    model = ScriptedModel([Turn([1], [0.0], [ToolCall("add", written)]), Turn([4], [0.0])], [9], [[2]])
    episode, tools = played(model)
    assert tools.called == []
    assert (episode.tool_calls, episode.tool_errors) == (1, 1)
    assert "must be a JSON object" in model.rendered[0][1][0]["content"]


@given(st.text(max_size=300), st.integers(2, 120))
def test_a_long_result_keeps_its_beginning_and_its_end(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        half = limit // 2
        assert short.startswith(text[:half])
        assert short.endswith(text[-half:])
        assert f"{len(text) - 2 * half} characters left out" in short


def test_one_log_probability_per_token_or_an_error() -> None:
    model = ScriptedModel([Turn([1, 2], [0.0])], [9], [])
    with pytest.raises(ValueError, match="2 sampled tokens came with 1 log-probabilities"):
        played(model)
