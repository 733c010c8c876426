"""A finished episode's rows: with the episode's reward, or with their agent's where the scorer gave it one."""

from types import SimpleNamespace
from typing import Any

import pytest
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from aworld_train.adapter.episodes.player import FinishedEpisode
from aworld_train.adapter.verl.agent_loop import EpisodeRow, output_rows
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.rollout.graph import Row
from aworld_train.rollout.model import WeightVersions


def row(agent: str, score: float | None, scores: dict[str, Any] | None) -> EpisodeRow:
    """A row as VeRL leaves it after scoring: the last row's reward and all that the scorer said, on every row."""
    made = EpisodeRow(
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5],
        response_mask=[1, 0, 1],
        response_logprobs=[-1.0, 0.0, -2.0],
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields={"agent": agent},
    )
    made.reward_score = score
    if scores is not None:
        made.extra_fields["reward_extra_info"] = scores
    return made


def rewards(agent: str, score: float | None, scores: dict[str, Any] | None) -> Any:
    found = row(agent, score, scores).as_dict().get("rm_scores")
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("agent", "reward"), [("planner", 0.25), ("worker", 1.0), ("lazy", 0.0), ("other", 0.5), ("plan", 0.5)]
)
def test_an_agent_has_a_reward_of_its_own_if_the_scorer_gives_it_one_else_the_episode_s(
    agent: str, reward: float
) -> None:
    scores = {"score": 0.5, "score/planner": 0.25, "score/worker": 1, "score/lazy": 0, "acc": 1.0}
    assert rewards(agent, 0.5, scores) == [0.0, 0.0, reward]


def test_without_scores_there_is_the_episode_s_reward_or_none() -> None:
    assert rewards("planner", 0.5, None) == [0.0, 0.0, 0.5]
    assert rewards("planner", 0.5, {"score/planner": None}) == [0.0, 0.0, 0.5]
    assert rewards("planner", None, None) is None


def test_everything_else_is_as_verl_has_it() -> None:
    own = row("planner", 0.5, {"score/planner": 0.25}).as_dict()
    plain = row("planner", 0.25, {"score/planner": 0.25})
    plain.extra_fields["agent"] = "someone else"
    expected = plain.as_dict()
    assert own.keys() == expected.keys()
    for name in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores"):
        assert own[name].tolist() == expected[name].tolist()


def test_the_row_keeps_the_episode_s_reward_for_the_record() -> None:
    made = row("planner", 0.5, {"score": 0.5, "score/planner": 0.25})
    made.as_dict()
    assert made.reward_score == 0.5


def test_an_episode_s_rows_are_verl_s_with_their_agent_and_the_facts_that_are_scored() -> None:
    nothing: Any = None
    result: Any = SimpleNamespace(
        answer="42",
        outcome=Outcome.answered,
        tools=SimpleNamespace(calls=3, errors=1, seconds=0.5),
        episode=SimpleNamespace(generate_seconds=1.5),
    )
    image: Any = SimpleNamespace(picture="a picture")
    seen = Row([1], [2, 3], [1, 0], [-1.0, 0.0], [(0, 1)], WeightVersions(3, 5), [image], nothing, ((0, 3),))
    blind = Row([1], [2], [0], [0.0], [(0, 1), (1, 1), (1, 1)], None, [], nothing)
    first, second = output_rows(
        FinishedEpisode(result, [("planner", seen), ("worker", blind)], Treatment.trained, "6*7?")
    )
    assert (first.prompt_ids, first.response_ids, first.response_mask) == ([1], [2, 3], [1, 0])
    assert (first.response_logprobs, first.multi_modal_data) == ([-1.0, 0.0], {"images": ["a picture"]})
    assert (first.num_turns, second.num_turns, second.multi_modal_data) == (2, 6, None)
    assert first.metrics == AgentLoopMetrics(generate_sequences=1.5, tool_calls=0.5)
    facts = {
        "assistant_text": "42",
        "query": "6*7?",
        "outcome": "answered",
        "tool_call_count": 3,
        "tool_error_count": 1,
        "turn_scores": [],
        "tool_rewards": [],
    }
    assert first.extra_fields == facts | {
        "agent": "planner",
        "min_global_steps": 3,
        "max_global_steps": 5,
        "version_parts": ((0, 3),),
    }
    assert second.extra_fields == facts | {
        "agent": "worker",
        "min_global_steps": None,
        "max_global_steps": None,
        "version_parts": (),
    }
