"""However an agent ends, its episode has an outcome and a cause, and what was not played is not scored."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.player import _NEVER_ASKED, EpisodePlayer, FinishedEpisode
from aworld_train.adapter.episodes.record import open_record
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.recipe.schema import EpisodeUse
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest, Message
from aworld_train.rollout.outcome import AgentFailed, EpisodeFailure, Outcome, ToolHelperFailed
from tests.templates import ScriptedModel, cut_up

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


class Computing(Asking):
    """Needs no model."""

    asks_model = False


class Hanging(Asking):
    """Does not come to an end."""

    async def play(self, *arguments: Any) -> str:
        await super().play(*arguments)
        return await asyncio.Future()


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
    **agent_settings: Any,
) -> tuple[FinishedEpisode, dict[str, Any]]:
    """An episode, and the line that it leaves."""
    recipe = recipes.load({"agent": agent_settings, "rollout": {"outcomes": outcomes or {}}})
    settings = settings_from(episode_settings(recipe))
    agent = kind(settings)
    agent.turns, agent.end = turns, end
    record = open_record(1, False, 0)
    finished = await EpisodePlayer(settings, agent).play(
        ScriptedModel("chatml_tools", draw),
        TASK,
        {},
        model_name="m",
        max_prompt_tokens=1000,
        max_response_tokens=1000,
    )
    assert finished.result.episode.over.is_set()
    assert (record.line["outcome"], record.line["cause"]) == (finished.result.outcome, finished.result.cause)
    return finished, record.line


@pytest.mark.parametrize(
    ("how", "outcome", "cause"),
    [
        ({}, Outcome.answered, None),
        ({"end": ValueError("a fault\nof this package")}, Outcome.infrastructure, "ValueError: a fault"),
        ({"end": AgentFailed("a bug of its own")}, Outcome.agent, "a bug of its own"),
        ({"end": ToolHelperFailed("no helper")}, Outcome.tool, "no helper"),
        ({"draw": engine_fails}, Outcome.provider, "the engine failed"),
        ({"draw": engine_fails, "end": AgentFailed("a bug")}, Outcome.provider, "the engine failed"),
        ({"turns": 2, "max_turns": 1}, Outcome.max_turns, "all 1 turns of this agent are used up"),
        ({"kind": Hanging, "episode_timeout": 0.05}, Outcome.timeout, "not over after 0.05 seconds"),
        ({"turns": 0}, Outcome.agent, _NEVER_ASKED),
        ({"kind": Computing, "turns": 0}, Outcome.answered, None),
    ],
)
async def test_however_an_agent_ends_its_episode_has_an_outcome_and_a_cause(
    how: dict[str, Any], outcome: Outcome, cause: str | None
) -> None:
    finished, _ = await played(**how)
    assert (finished.result.outcome, finished.result.cause) == (outcome, cause)


@pytest.mark.parametrize("use", EpisodeUse)
@pytest.mark.parametrize(
    ("how", "was_played"),
    [({}, True), ({"turns": 0}, False), ({"kind": Computing, "turns": 0}, True), ({"kind": Computing}, True)],
)
async def test_what_is_scored_was_played_and_is_not_dropped(
    how: dict[str, Any], was_played: bool, use: EpisodeUse
) -> None:
    finished, line = await played(**how, outcomes=dict.fromkeys(Outcome, use.value))
    assert (finished.use, line["treatment"]) == (use, use.value)
    assert finished.is_scored is (was_played and use is not EpisodeUse.dropped)


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
