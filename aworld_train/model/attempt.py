"""One attempt at a tiny model: two lessons, each of which ends when a measurement reaches its goal, and the gate."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from aworld_train.model import warm_start
from aworld_train.model.build_progress import TinyBuildProgress
from aworld_train.model.sampling import SampledEpisode, play
from aworld_train.model.tokenizer import CONTEXT
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

MIN_ACCURACY, MAX_ACCURACY = 0.3, 0.52
"""Greedy accuracy of an accepted model: high enough that sampled groups have right answers, and low enough that
training can raise it by far more than 20 points."""
MIN_MIXED_GROUPS = 0.65
MIN_SAMPLED_ACCURACY = 0.3
GATE = (
    f"greedy accuracy {MIN_ACCURACY}-{MAX_ACCURACY}; at temperature 1 at least {MIN_MIXED_GROUPS} of the "
    f"groups mixed and an accuracy of {MIN_SAMPLED_ACCURACY}"
)

MAX_GUESS_LESSONS = 3
TOOL_CHECK_TASKS = 128
GROUP_TASKS = 64
GROUP = 8


@dataclass(frozen=True)
class Greedy:
    accuracy: float
    tool_use: float


@dataclass(frozen=True)
class SampledGroups:
    """Shares at temperature 1; GRPO learns only from mixed groups, which have right and wrong answers."""

    mixed_groups: float
    accuracy: float
    tool_use: float


@dataclass(frozen=True)
class TinyModelAttempt:
    model: Any
    encoder: TranscriptEncoder
    train_tasks: Sequence[ArithmeticTask]
    val_tasks: Sequence[ArithmeticTask]
    seed: int
    progress: TinyBuildProgress


@dataclass(frozen=True)
class AcceptedModel:
    model: Any
    encoder: TranscriptEncoder
    greedy: Greedy
    sampled: SampledGroups


def new_model(tokenizer: Any, seed: int) -> Any:
    """A `Qwen3ForCausalLM` in fp32, small enough to learn to copy within a minute on one core; random by its seed."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=192,
        tie_word_embeddings=True,
        initializer_range=0.06,  # with the usual 0.02 some seeds learn to copy only after twice as many steps
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def run(attempt: TinyModelAttempt) -> AcceptedModel | None:
    """Teach both lessons; returns None where one of them did not reach its goal."""
    return _teach_guessing(attempt) if _teach_tool(attempt) else None


def _teach_tool(attempt: TinyModelAttempt) -> bool:
    attempt.progress.phase = "tool"

    def measure(step: int) -> float:
        result = greedy(attempt.model, attempt.encoder, attempt.val_tasks[:TOOL_CHECK_TASKS])
        attempt.progress.measured(step, **asdict(result))
        return result.accuracy

    return warm_start.learn_tool(
        warm_start.Updater(attempt.model, attempt.encoder.preamble),
        warm_start.tool_batches(attempt.encoder, attempt.train_tasks, attempt.seed),
        measure,
        attempt.progress.stepped,
    )


def _teach_guessing(attempt: TinyModelAttempt) -> AcceptedModel | None:
    """The second lesson, from the weights of the first, repeated until the model meets the gate."""
    attempt.progress.phase = "guess"
    model, encoder = attempt.model, attempt.encoder
    tool_weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    limit = warm_start.max_short_length(attempt.val_tasks)
    for lesson in range(MAX_GUESS_LESSONS):
        model.load_state_dict(tool_weights)
        accepted = warm_start.learn_to_guess(
            warm_start.Updater(model, encoder.preamble, scale=warm_start.GUESS_SCALE),
            warm_start.mixed_batches(encoder, attempt.train_tasks, limit, attempt.seed + lesson),
            lambda step: _measure_gate(attempt, step),
            attempt.progress.stepped,
        )
        if accepted:
            return accepted
    return None


def _measure_gate(attempt: TinyModelAttempt, step: int) -> AcceptedModel | None:
    greedy_result = greedy(attempt.model, attempt.encoder, attempt.val_tasks)
    if not MIN_ACCURACY <= greedy_result.accuracy <= MAX_ACCURACY:
        attempt.progress.measured(step, **asdict(greedy_result))
        return None
    groups = sampled(attempt.model, attempt.encoder, attempt.val_tasks[:GROUP_TASKS], attempt.seed)
    attempt.progress.measured(
        step,
        **asdict(greedy_result),
        mixed_groups=groups.mixed_groups,
        sampled_accuracy=groups.accuracy,
        sampled_tool_use=groups.tool_use,
    )
    if groups.mixed_groups < MIN_MIXED_GROUPS or groups.accuracy < MIN_SAMPLED_ACCURACY:
        return None
    return AcceptedModel(attempt.model, attempt.encoder, greedy_result, groups)


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
