"""The line that every episode leaves in ``traces/episodes.jsonl``, whatever becomes of it.

The worker opens a slot around an episode, the agent loop fills it, and the worker writes it once VeRL has computed the
score. Slots are kept per task, for a worker plays many episodes at the same time.
"""

import json
import os
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.react import Episode

RUN_DIR_VARIABLE = "AWORLD_TRAIN_RUN_DIR"


class EpisodeSlot:
    """One episode in the making, and in the end one line of JSON."""

    def __init__(self, step: int, validate: bool, index: int):
        self.line: dict[str, Any] = {"step": step, "validate": validate, "index": index}
        self.output: Any = None

    def finish(self, episode: Episode, cause: str | None, seconds: float) -> None:
        """Take down what the episode came to."""
        assert episode.outcome is not None
        self.line |= {
            "outcome": episode.outcome.value,
            "trainable": episode.outcome.trainable,
            "turns": episode.turns,
            "tool_calls": episode.tool_calls,
            "tool_errors": episode.tool_errors,
            "prompt_tokens": len(episode.path.prompt),
            "response_tokens": len(episode.path.response),
            "sampled_tokens": sum(episode.path.mask),
            "seconds": round(seconds, 4),
            "cause": cause,
        }

    def lost(self, cause: str) -> None:
        """Take down at once that the environment went away; the episode itself may still be played again."""
        _append({**self.line, "outcome": Outcome.environment.value, "retried": True, "cause": cause})

    def write(self, error: BaseException | None) -> None:
        """Append the line to the run's record. A loop that raised leaves a line too, as an untrainable episode."""
        if "outcome" not in self.line or error is not None:
            self.line |= {
                "outcome": Outcome.provider.value,
                "trainable": False,
                "cause": f"{type(error).__name__}: {error}" if error else "the agent loop reported nothing",
            }
        if self.output is not None:
            self.line["reward"] = self.output.reward_score
            scores = self.output.extra_fields.get("reward_extra_info") or {}
            self.line["scores"] = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        _append(self.line)


def _append(line: dict[str, Any]) -> None:
    """Add a line to the run's record; nothing happens outside a run."""
    folder = os.environ.get(RUN_DIR_VARIABLE)
    if not folder:
        return
    file = Path(folder) / "traces" / "episodes.jsonl"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # One write on O_APPEND: lines of several processes do not mix.
        os.write(descriptor, (json.dumps(line, ensure_ascii=False) + "\n").encode())
    finally:
        os.close(descriptor)


_current: ContextVar[EpisodeSlot] = ContextVar("current_episode")


def current_episode() -> EpisodeSlot:
    """The slot of the episode that this task plays."""
    return _current.get()


def open_slot(step: int, validate: bool, index: int) -> EpisodeSlot:
    """A new slot for the episode that this task is about to play."""
    slot = EpisodeSlot(step, validate, index)
    _current.set(slot)
    return slot
