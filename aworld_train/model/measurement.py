"""Measurements of the tiny model, which decide whether it is accepted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aworld_train.model.sampling import SampledEpisode, play
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

GROUP = 8


@dataclass(frozen=True)
class Greedy:
    """The likeliest episode of each task; shares of them."""

    accuracy: float
    tool_use: float


@dataclass(frozen=True)
class SampledGroups:
    """Shares at temperature 1; GRPO learns only from mixed groups, which have right and wrong answers."""

    mixed_groups: float
    accuracy: float
    tool_use: float


def greedy(model: Any, encoder: TranscriptEncoder, tasks: Sequence[ArithmeticTask]) -> Greedy:
    episodes = play(model, encoder, [task.expression for task in tasks])
    right = [_right(episode, task) for episode, task in zip(episodes, tasks, strict=True)]
    return Greedy(_share(right), _share([episode.used_tool for episode in episodes]))


def sampled(
    model: Any, encoder: TranscriptEncoder, tasks: Sequence[ArithmeticTask], seed: int
) -> SampledGroups:
    repeated = [task for task in tasks for _ in range(GROUP)]
    episodes = play(
        model,
        encoder,
        [task.expression for task in repeated],
        temperature=1.0,
        generator=torch.Generator().manual_seed(seed),
    )
    right = [_right(episode, task) for episode, task in zip(episodes, repeated, strict=True)]
    groups = [sum(right[start : start + GROUP]) for start in range(0, len(right), GROUP)]
    return SampledGroups(
        mixed_groups=_share([0 < count < GROUP for count in groups]),
        accuracy=_share(right),
        tool_use=_share([episode.used_tool for episode in episodes]),
    )


def _right(episode: SampledEpisode, task: ArithmeticTask) -> bool:
    return episode.answer is not None and episode.answer.strip() == task.value


def _share(flags: Sequence[bool]) -> float:
    return round(sum(flags) / len(flags), 4)
