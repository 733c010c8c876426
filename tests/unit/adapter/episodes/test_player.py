"""However an agent ends, its episode has an outcome and a cause, and what was not played is not scored."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes import player
from aworld_train.adapter.episodes.agent import EpisodeAgent, McpAgent
from aworld_train.adapter.episodes.external_agent import ExternalAgent
from aworld_train.adapter.episodes.player import _NEVER_ASKED, EpisodePlayer, FinishedEpisode, episode_facts
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, open_record
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout import react
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.images import TEXT_ONLY
from aworld_train.rollout.messages import ChatRequest, RequestRefused
from aworld_train.rollout.outcome import (
    AgentFailed,
    EngineLost,
    EnvironmentLost,
    EpisodeFailure,
    ToolHelperFailed,
    ToolsBroken,
)
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tools import ToolResult
from tests.templates import ScriptedModel, cut_up
from tests.vision import data_url, png

TASK = {"raw_prompt": [{"role": "user", "content": "What is 6*7?"}]}


class Asking(EpisodeAgent):
    """Asks the model ``turns`` times and then ends as ``end`` says."""

    turns = 1
    end: BaseException | None = None

    async def play(self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str) -> str:
        conversation = result.episode.conversation("agent")
        answer = ""
        for _ in range(self.turns):
            answer = (await conversation.complete(ChatRequest(messages))).content
        if self.end is not None:
            raise self.end
        return answer


class Forgiving(Asking):
    """Answers as well when it is refused."""

    async def play(self, *arguments: Any) -> str:
        try:
            return await super().play(*arguments)
        except RequestRefused:
            return "I give up."


class Computing(Asking):
    """Needs no model."""

    asks_model = False


class Hanging(Asking):
    """Does not come to an end."""

    async def play(self, *arguments: Any) -> str:
        await super().play(*arguments)
        return await asyncio.Future()


class WaitingForTheEngine(Hanging):
    """Asks an engine that does not answer."""

    async def play(self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str) -> str:
        async def stall(*_: Any) -> Any:
            await asyncio.Future()

        assert isinstance(result.episode, TokenEpisode)
        result.episode._model.generate = stall  # type: ignore[method-assign]
        return await super().play(messages, task, result, model_name)


class WaitingForATool(Asking):
    """Calls a tool that does not answer, after long turns."""

    async def play(self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str) -> str:
        await super().play(messages, task, result, model_name)
        result.episode.generate_seconds = 60.0
        await react._call(NoAnswer(), ToolCall("nap", "{}"), result.tools, 100, False)
        raise AssertionError("unreachable")


class NoAnswer:
    """Tools that do not answer."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return await asyncio.Future()


class LosingAndHanging(Hanging):
    """Goes on after its tools were lost."""

    async def play(self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str) -> str:
        try:
            return await super().play(messages, task, result, model_name)
        finally:
            result.episode.fail(ToolsBroken("gone"))


def says_42(tokenizer: Any) -> tuple[list[int], bool]:
    return [*cut_up(tokenizer, "42", 0), tokenizer.eos_token_id], True


def engine_fails(tokenizer: Any) -> tuple[list[int], bool]:
    raise EpisodeFailure("the engine failed")


async def played(
    kind: type[Asking] = Asking,
    *,
    turns: int = 1,
    end: BaseException | None = None,
    draw: Callable[[Any], tuple[list[int], bool]] = says_42,
    outcomes: dict[str, str] | None = None,
    task: dict[str, Any] = TASK,
    **agent_settings: Any,
) -> tuple[FinishedEpisode, dict[str, Any]]:
    """An episode, and the line that it leaves."""
    recipe = recipes.load({"agent": agent_settings, "rollout": {"treatment": outcomes or {}}})
    settings = settings_from(episode_settings(recipe))
    agent = kind(settings)
    agent.turns, agent.end = turns, end
    record = open_record(1, False, 0)
    finished = await EpisodePlayer(settings, agent).play(
        ScriptedModel("chatml_tools", draw),
        task,
        {},
        model_name="m",
        max_prompt_tokens=1000,
        max_response_tokens=1000,
    )
    assert finished.result.episode.over.is_set()
    assert (record.figures.outcome, record.figures.cause) == (finished.result.outcome, finished.result.cause)
    return finished, record.figures.line()


@pytest.mark.parametrize(
    ("how", "outcome", "cause"),
    [
        ({}, Outcome.answered, None),
        ({"end": ValueError("a fault\nof this package")}, Outcome.infrastructure, "ValueError: a fault"),
        ({"end": TimeoutError("no server")}, Outcome.infrastructure, "TimeoutError: no server"),
        ({"end": AgentFailed("a bug of its own")}, Outcome.agent, "a bug of its own"),
        ({"end": ToolHelperFailed("no helper")}, Outcome.tool, "no helper"),
        ({"end": ToolsBroken("no worker")}, Outcome.broken_tools, "no worker"),
        ({"draw": engine_fails}, Outcome.provider, "the engine failed"),
        ({"draw": engine_fails, "end": AgentFailed("a bug")}, Outcome.provider, "the engine failed"),
        ({"draw": engine_fails, "kind": Forgiving}, Outcome.provider, "the engine failed"),
        ({"turns": 2, "max_turns": 1}, Outcome.max_turns, "all 1 turns of this episode are used up"),
        ({"kind": Hanging, "episode_timeout": 0.5}, Outcome.timeout, "not over after 0.5 seconds"),
        ({"kind": WaitingForATool, "episode_timeout": 0.4}, Outcome.timeout, "not over after 0.4 seconds"),
        ({"kind": LosingAndHanging, "episode_timeout": 0.5}, Outcome.broken_tools, "gone"),
        ({"turns": 0}, Outcome.agent, _NEVER_ASKED),
        ({"kind": Computing, "turns": 0}, Outcome.answered, None),
    ],
)
async def test_however_an_agent_ends_its_episode_has_an_outcome_and_a_cause(
    how: dict[str, Any], outcome: Outcome, cause: str | None
) -> None:
    finished, _ = await played(**how)
    assert (finished.result.outcome, finished.result.cause) == (outcome, cause)


async def test_an_episode_that_waits_for_the_engine_most_of_its_time_is_not_the_agent_s_fault() -> None:
    finished, _ = await played(WaitingForTheEngine, episode_timeout=0.4)
    assert finished.result.outcome is Outcome.provider
    # How long the engine was waited for depends on the machine.
    assert re.fullmatch(r"the engine took \d+ of 0\.4 seconds", finished.result.cause or "")


async def test_the_images_of_a_task_are_in_its_messages_and_not_left_out_for_a_model_of_text() -> None:
    shown: list[Message] = []

    class Looking(Asking):
        """Notes what it is to show."""

        async def play(self, messages: list[Message], *others: Any) -> str:
            shown.extend(messages)
            return await super().play(messages, *others)

    red = Image.read(png(), 0)
    prompt = [{"role": "user", "content": f"What is {red.mark} here?"}]
    images = np.array([data_url(red.file)], dtype=object)
    finished, _ = await played(Looking, task={"raw_prompt": prompt, "extra_info": {"images": images}})
    assert shown == [Message("user", "What is  here?", images=(replace(red, position=8),))]
    assert finished.result.outcome is Outcome.agent
    assert f"there is an image in them, and {TEXT_ONLY}" in (finished.result.cause or "")


@pytest.mark.parametrize("use", Treatment)
@pytest.mark.parametrize(
    ("how", "was_played"),
    [({}, True), ({"turns": 0}, False), ({"kind": Computing, "turns": 0}, True), ({"kind": Computing}, True)],
)
async def test_what_is_scored_was_played_and_is_not_dropped(
    how: dict[str, Any], was_played: bool, use: Treatment
) -> None:
    finished, line = await played(**how, outcomes=dict.fromkeys(Outcome, use.value))
    assert (finished.treatment, line["treatment"]) == (use, use.value)
    assert finished.is_scored is (was_played and use is not Treatment.dropped)


@pytest.mark.parametrize(
    ("use", "masks"), [("trained", [[1, 1, 1]]), ("masked", [[0, 0, 0]]), ("dropped", [])]
)
async def test_rows_are_as_the_recipe_uses_them_and_recorded_as_they_were_sampled(
    use: str, masks: list[list[int]]
) -> None:
    finished, line = await played(outcomes={"answered": use})
    assert [row.mask for _, row in finished.rows] == masks
    assert (line["rows"], line["sampled_tokens"]) == (1, 3)


async def test_an_agent_that_was_told_of_its_limit_is_not_at_fault_for_failing_then() -> None:
    class Stumbling(Asking):
        """Fails when it is refused."""

        async def play(self, *arguments: Any) -> str:
            try:
                return await super().play(*arguments)
            except Exception as error:
                raise AgentFailed("a bug") from error

    finished, _ = await played(Stumbling, turns=2, max_turns=1)
    assert (finished.result.outcome, finished.result.cause) == (Outcome.max_turns, "a bug")


async def test_what_is_measured_and_scored_of_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    class Using(Asking):
        """Has used tools."""

        async def play(
            self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str
        ) -> str:
            assert [(message.role, message.content) for message in messages] == [
                ("system", "Use tools."),
                ("user", "What is 6*7?"),
            ]
            result.tools.calls, result.tools.errors = 3, 1
            return await super().play(messages, task, result, model_name)

    monkeypatch.setattr(player, "time", SimpleNamespace(monotonic=iter((100.0, 102.5)).__next__))
    finished, line = await played(Using, system_prompt="Use tools.")
    assert line["seconds"] == 2.5
    assert episode_facts(finished) == {
        "assistant_text": "42",
        "query": "What is 6*7?",
        "outcome": "answered",
        "tool_call_count": 3,
        "tool_error_count": 1,
    }


async def test_an_episode_that_lost_its_own_worker_is_scored_without_an_answer_and_not_played_again(
    run_dir: Path,
) -> None:
    class Speaking(Asking):
        """Has given an answer before it breaks its tools."""

        async def play(
            self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str
        ) -> str:
            result.answer = "42"
            return await super().play(messages, task, result, model_name)

    finished, line = await played(Speaking, end=ToolsBroken("gone"))
    assert (line["treatment"], finished.is_scored, finished.result.answer) == ("trained", True, "")
    assert not (run_dir / "traces" / "episodes.jsonl").exists()


@pytest.mark.parametrize(
    ("losses", "comes_back", "outcomes"),
    [
        (1, True, ["environment", "answered"]),
        (1, False, ["environment", "environment"]),
        (9, True, ["environment", "environment"]),
        (0, True, ["answered"]),
    ],
)
async def test_an_episode_whose_environment_was_lost_is_played_once_more_if_that_comes_back(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, losses: int, comes_back: bool, outcomes: list[str]
) -> None:
    plays, waits = [], []

    class Losing(Asking):
        """Loses its environment so often."""

        server: Any = SimpleNamespace(url="http://127.0.0.1:1/mcp")

        async def play(self, *arguments: Any) -> str:
            plays.append(1)
            answer = await super().play(*arguments)
            if len(plays) <= losses:
                raise EnvironmentLost("no answer")
            return answer

    async def wait_until_healthy(*arguments: Any) -> bool:
        waits.append(arguments)
        return comes_back

    monkeypatch.setattr(player, "wait_until_healthy", wait_until_healthy)
    recovery = recipes.load({}).env.recovery_timeout
    _, line = await played(Losing)
    lost = (run_dir / "traces" / "episodes.jsonl").read_text().splitlines() if losses else []
    assert [json.loads(text)["outcome"] for text in lost] + [line["outcome"]] == outcomes
    assert len(plays) == (2 if losses and comes_back else 1)
    assert waits == [("http://127.0.0.1:1/health", recovery + 15.0)] * min(losses, 1)
    assert line["turns"] == 1


@pytest.mark.parametrize(
    ("section", "kind"),
    [({}, McpAgent), ({"command": ["./agent"]}, ExternalAgent), ({"loop": "a:B"}, ExternalAgent)],
)
def test_the_agent_is_the_one_of_the_recipe_unless_another_is_given(
    section: dict[str, Any], kind: type[EpisodeAgent]
) -> None:
    settings = settings_from(episode_settings(recipes.load({"agent": section})))
    assert type(EpisodePlayer(settings).agent) is kind
    other = Asking(settings)
    assert EpisodePlayer(settings, other).agent is other


@pytest.mark.parametrize(("deaths", "outcome"), [(1, "answered"), (2, "infrastructure")])
async def test_an_episode_whose_engine_died_is_played_once_more_from_its_beginning(
    deaths: int, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    (tmp_path / "traces").mkdir()
    left = iter(range(deaths))

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        if next(left, None) is not None:
            raise EngineLost("the sampler died")
        return says_42(tokenizer)

    finished, _ = await played(Asking, draw=draw)
    assert finished.result.outcome == outcome
    assert finished.is_scored == (deaths == 1) and len(finished.rows) == (deaths == 1)
    (lost,) = map(json.loads, (tmp_path / "traces" / "episodes.jsonl").read_text().splitlines())
    assert (lost["outcome"], lost["cause"], lost["retried"]) == ("infrastructure", "the sampler died", True)
