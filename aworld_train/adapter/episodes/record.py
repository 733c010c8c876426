"""The line that every episode leaves in ``traces/episodes.jsonl``, whatever becomes of it.

The worker opens a slot around an episode, the agent loop fills it, and the worker writes it once VeRL has computed the
score. Slots are kept per task, for a worker plays many episodes at the same time.
"""

import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aworld_train.adapter.episodes.scoring import SCORING
from aworld_train.masking import masked
from aworld_train.recipe.schema import EpisodeUse
from aworld_train.reward.hacking import ToolUse, look, suspicions
from aworld_train.rollout.episode import Episode
from aworld_train.rollout.graph import Row
from aworld_train.rollout.outcome import Outcome

if TYPE_CHECKING:
    from aworld_train.adapter.verl.agent_loop import EpisodeResult

RUN_DIR_VARIABLE = "AWORLD_TRAIN_RUN_DIR"


class Unscored(Exception):
    """An episode whose score cannot be had: its scorer abstained, was too slow or failed."""


class EpisodeRecord:
    """One episode in the making, and in the end one line of JSON.

    Attributes:
        validate: Whether the model is measured, not trained.
        line: What is known so far.
        outputs: The rows that VeRL was given, of which it scores the last.
        played: The episode, once it is over.
    """

    def __init__(self, step: int, validate: bool, index: int):
        self.validate = validate
        self.line: dict[str, Any] = {"step": step, "validate": validate, "index": index}
        self.outputs: list[Any] = []
        self.played: EpisodeResult | None = None

    def finish(
        self, played: "EpisodeResult", rows: list[tuple[str, Row]], treatment: EpisodeUse, seconds: float
    ) -> None:
        """Take down what the episode came to."""
        self.played, episode = played, played.episode
        agents = episode.agents.values()
        self.line |= {
            "outcome": played.outcome.value,
            "treatment": treatment.value,
            "turns": episode.turns,
            "tool_calls": played.tools.calls,
            "tool_errors": played.tools.errors,
            "rows": len(rows),
            "prompt_tokens": sum(len(row.prompt) for _, row in rows),
            "response_tokens": sum(len(row.response) for _, row in rows),
            "sampled_tokens": sum(sum(row.mask) for _, row in rows),
            "unique_tokens": sum(
                episode.agents[name].graph.unique_tokens for name in {name for name, _ in rows}
            ),
            "given_tokens": episode.given_tokens,
            "branches": dict(episode.branches),
            "agents": {agent.name: len(agent.completions) for agent in agents},
            "seconds": round(seconds, 4),
            "generate_seconds": round(episode.generate_seconds, 4),
            "tool_seconds": round(played.tools.seconds, 4),
            "cause": played.cause,
        }

    def take_score(self, task: Mapping[str, Any]) -> None:
        """Take down how the last row was scored, and what VeRL must not see of it out of there.

        Args:
            task: The dataset's row.

        Raises:
            Unscored: there is no score; the episode is left out.
        """
        scored = self.outputs[-1]
        scores = scored.extra_fields.get("reward_extra_info") or {}
        scoring = scores.pop(SCORING, None)
        if scoring is None:
            return  # VeRL was told to score in another way, or not at all
        self.line |= {"scorer": scoring["scorer"], "scoring": scoring["outcome"], "parts": scoring["parts"]}
        if scoring["score"] is None:
            self.outputs = []
            self.line |= {"treatment": EpisodeUse.dropped.value, "cause": scoring["cause"]}
            raise Unscored(f"{scoring['scorer']}: {scoring['cause']}")
        self._suspect(scoring, scores, task)

    def _suspect(
        self, scoring: Mapping[str, Any], scores: Mapping[str, Any], task: Mapping[str, Any]
    ) -> None:
        """Take down what the episode makes one ask, and enough of it to answer that."""
        played = self.played
        if played is None:
            return
        info = task.get("extra_info") or {}
        attachments = info.get("attachments")
        query = "\n".join(
            str(message.get("content") or "") for message in task["raw_prompt"] if message["role"] == "user"
        )
        found = suspicions(
            query=query,
            said=played.answer,
            answer=scoring["extracted"],
            right=float(scores["acc"]) >= 1.0,
            tools=tool_uses(played.episode),
            tool_calls=played.tools.calls,
            # An array, where the rows were read so.
            files=[] if attachments is None else [str(path) for path in attachments],
        )
        if found:
            truth = str((task.get("reward_model") or {}).get("ground_truth") or "")
            self.line["suspicions"] = [one.value for one in found]
            self.line["look"] = look(query, played.answer, scoring["extracted"], truth)

    def lost(self, cause: str) -> None:
        """Take down at once that the environment went away; the episode itself may still be played again."""
        _append({**self.line, "outcome": Outcome.environment.value, "retried": True, "cause": cause})

    def write(self, error: BaseException | None) -> None:
        """Append the line to the run's record. A loop that raised leaves a line too, as a dropped episode."""
        if "outcome" not in self.line or error is not None:
            self.line |= {
                "outcome": Outcome.infrastructure.value,
                "treatment": EpisodeUse.dropped.value,
                "cause": f"{type(error).__name__}: {error}" if error else "the agent loop reported nothing",
            }
        if self.outputs:
            scored = self.outputs[-1]
            self.line["reward"] = scored.reward_score
            scores = scored.extra_fields.get("reward_extra_info") or {}
            self.line["scores"] = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        _append(self.line)


def tool_uses(episode: Episode) -> list[ToolUse]:
    """The calls of an episode with their results, in the order of the conversation; each once."""
    uses: list[ToolUse] = []
    for agent in episode.agents.values():
        asked: dict[str, str] = {}
        for node in agent.graph.nodes():
            for message in node.messages:
                asked |= {call.call_id: call.arguments for call in message.tool_calls}
                if message.role == "tool":
                    uses.append(ToolUse(asked.get(message.call_id, ""), message.content))
    return uses


def _append(line: dict[str, Any]) -> None:
    """Add a line to the run's record; nothing happens outside a run."""
    folder = os.environ.get(RUN_DIR_VARIABLE)
    if not folder:
        return
    file = Path(folder) / "traces" / "episodes.jsonl"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # One write on O_APPEND: lines of several processes do not mix.
        os.write(descriptor, (json.dumps(masked(line), ensure_ascii=False) + "\n").encode())
    finally:
        os.close(descriptor)


_current: ContextVar[EpisodeRecord] = ContextVar("current_episode")


def current_episode() -> EpisodeRecord:
    """The slot of the episode that this task plays."""
    return _current.get()


def open_record(step: int, validate: bool, index: int) -> EpisodeRecord:
    """A new slot for the episode that this task is about to play."""
    slot = EpisodeRecord(step, validate, index)
    _current.set(slot)
    return slot
