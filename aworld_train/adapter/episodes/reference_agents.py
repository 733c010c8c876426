"""Two agents that check a benchmark itself: one gives every right answer, the other none. Neither asks a model.

A benchmark is sound where the first is right everywhere and the second nowhere, scored as any agent. ``composite`` may
still pay for being short or for using tools; its part ``correct`` does not.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aworld_train.adapter.episodes.agent import EpisodeAgent, Task
from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.dataset.schema import GROUND_TRUTHS
from aworld_train.episode.message import Message
from aworld_train.errors import UsageError
from aworld_train.reward.answer_forms import with_answer
from aworld_train.reward.scorers import CODE_TESTS
from aworld_train.reward.settings import ANSWER_SCHEMA, RewardSettings
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.outcome import AgentFailed

_MAX_QUOTED = 200  # characters of an answer in a message


class OracleAgent(EpisodeAgent):
    asks_model = False

    def __init__(self, settings: EpisodeSettings, reward: RewardSettings):
        super().__init__(settings)
        self._reward = reward

    async def play(self, messages: list[Message], task: Task, result: EpisodeResult, model_name: str) -> str:
        result.answer = oracle_reply(task, self._reward)
        return result.answer


class NullAgent(EpisodeAgent):
    asks_model = False

    async def play(self, messages: list[Message], task: Task, result: EpisodeResult, model_name: str) -> str:
        return ""


def check_oracle(reward: RewardSettings, scorers: Iterable[str | None]) -> None:
    if CODE_TESTS in reward.scorers_asked(scorers):
        raise UsageError(
            f"The oracle cannot answer tasks of the scorer {CODE_TESTS}: their rows have tests and no program that "
            "passes them."
        )


def oracle_reply(task: Mapping[str, Any], reward: RewardSettings) -> str:
    """One of the task's right answers, in the form that its answer schema reads.

    Raises UsageError where no answer could be given, AgentFailed where the form cannot hold it.
    """
    info = task.get("extra_info") or {}
    check_oracle(reward, [info.get("scorer")])
    schema = reward.answer_schema or info.get("answer_schema") or ANSWER_SCHEMA
    answers = _right_answers(task, info)
    for answer in answers:
        if (text := with_answer(answer, schema)) is not None:
            return text
    raise AgentFailed(
        f"the answer schema {schema} cannot hold the task's right answer, {answers[0][:_MAX_QUOTED]!r}: no model could "
        "give it"
    )


def _right_answers(task: Mapping[str, Any], info: Mapping[str, Any]) -> list[str]:
    truth = str((task.get("reward_model") or {}).get("ground_truth") or "")
    others = info.get(GROUND_TRUTHS)
    # May be an array, which has no truth value.
    return list(dict.fromkeys([truth, *(map(str, others) if others is not None else ())]))
