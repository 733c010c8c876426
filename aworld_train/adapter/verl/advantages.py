"""Advantages of whole samples, and weights of whole episodes, however many rows each has.

VeRL's estimators take each row for a sample of its own. Here the rows of a sample are laid end to end, an estimator
sees them as one row with one reward, and its advantages are cut apart again. A sample is an episode, or an agent's rows
where the scorer gives agents rewards of their own.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

Estimator = Callable[[DataProto], DataProto]
"""Adds ``advantages`` and ``returns`` to samples with ``token_level_rewards`` and ``response_mask``."""


@dataclass(frozen=True)
class Sample:
    """Rows with one reward, as places in the batch in the order in which they were played; a group is compared."""

    group: str
    rows: Sequence[int]


def samples_of(keys: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """The samples of a batch: keys of rows are ``{task}_{episode}_{number}``, facts are VeRL's extra fields."""
    parts: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for place, (key, fact) in enumerate(zip(keys, facts, strict=True)):
        task, episode, number = key.rsplit("_", 2)
        agent = str(fact.get("agent"))
        own = agent if f"score/{agent}" in (fact.get("reward_extra_info") or {}) else ""
        parts.setdefault((task, episode, own), []).append((int(number), place))
    return [
        Sample(f"{task}/{own}", [place for _, place in sorted(rows)])
        for (task, _, own), rows in parts.items()
    ]


def in_groups(samples: Sequence[Sample]) -> list[Sample]:
    """Samples with others in their group: VeRL's estimators take the reward of one alone for its advantage."""
    sizes = Counter(sample.group for sample in samples)
    return [sample for sample in samples if sizes[sample.group] > 1]


def scored_once(scores: torch.Tensor, samples: Sequence[Sample]) -> torch.Tensor:
    """Scores (rows x tokens), in which each row of a sample has its reward, with that of the last row alone."""
    once = torch.zeros_like(scores)
    for sample in samples:
        once[sample.rows[-1]] = scores[sample.rows[-1]]
    return once


def estimate(data: DataProto, lengths: Sequence[int], samples: Sequence[Sample], by: Estimator) -> None:
    """Give a batch (rows x tokens) the advantages and returns of its samples; other rows get zeros."""
    if not samples or not data.batch["response_mask"].any():
        data.batch["advantages"] = data.batch["returns"] = torch.zeros_like(data.batch["token_level_rewards"])
        return
    names = [name for name in ("token_level_rewards", "response_mask", "values") if name in data.batch]
    joined_rows = [sample.rows for sample in samples]
    columns = {name: _end_to_end(data.batch[name], lengths, joined_rows) for name in names}
    count, width = columns["response_mask"].shape
    # GDPO asks where a response ends, by a prompt of one token and the mask behind it.
    ends = torch.tensor([sum(lengths[row] for row in sample.rows) for sample in samples])
    columns["prompts"] = torch.zeros(count, 1, dtype=torch.int64)
    columns["attention_mask"] = torch.arange(width + 1)[None] <= ends[:, None]
    joined = DataProto(batch=TensorDict(columns, batch_size=count))
    joined.non_tensor_batch["uid"] = np.array([sample.group for sample in samples], dtype=object)
    joined.non_tensor_batch |= {
        name: values[[sample.rows[-1] for sample in samples]]
        for name, values in data.non_tensor_batch.items()
        if name != "uid"
    }
    estimated = by(joined)
    for name in ("advantages", "returns"):
        data.batch[name] = _cut_apart(
            estimated.batch[name], data.batch["response_mask"].shape, lengths, joined_rows
        )


def by_teacher(
    teacher: Sequence[torch.Tensor], log_probs: torch.Tensor, lengths: Sequence[int]
) -> torch.Tensor:
    """How much likelier the teacher makes each token than the student (rows x tokens): minus the reverse KL, sampled.

    The teacher's rows (tokens x 1) are those of prompts and responses, and have at each token the value of the next.
    """
    advantages = torch.zeros_like(log_probs)
    for row, (values, length) in enumerate(zip(teacher, lengths, strict=True)):
        advantages[row, :length] = values[-length - 1 : -1, 0] - log_probs[row, :length]
    return advantages


def episodes_of(keys: Sequence[str]) -> list[Sequence[int]]:
    """The places of each episode's rows, in the order in which they were played; keys are as in ``samples_of``."""
    episodes: dict[str, list[tuple[int, int]]] = {}
    for place, key in enumerate(keys):
        episode, number = key.rsplit("_", 1)
        episodes.setdefault(episode, []).append((int(number), place))
    return [[place for _, place in sorted(rows)] for rows in episodes.values()]


def correct(
    data: DataProto, lengths: Sequence[int], episodes: Sequence[Sequence[int]], settings: Any
) -> dict[str, float]:
    """Weigh or reject tokens by how far the trainer's probabilities are from the engine's, over whole episodes.

    A weight or a rejection of a sequence is one of an episode: the product of all its ratios, the mean over all its
    tokens. ``response_mask`` loses what is rejected, and ``rollout_is_weights`` is added where there are weights.
    Returns VeRL's measurements, and how many tokens and episodes are rejected; RuntimeError if no weight is left.
    """
    names = ("old_log_probs", "rollout_log_probs", "response_mask")
    joined = DataProto(
        batch=TensorDict(
            {name: _end_to_end(data.batch[name], lengths, episodes) for name in names},
            batch_size=len(episodes),
        )
    )
    before = joined.batch["response_mask"].bool()
    measured: dict[str, float]
    try:
        joined, measured = compute_rollout_correction_and_add_to_batch(joined, settings)
    except ZeroDivisionError:  # VeRL's measure of how many samples the weights are worth
        raise RuntimeError(
            f"The correction of the engine's probabilities (rollout_is_threshold={settings.rollout_is_threshold}) "
            "rejects every token of the step: engine and trainer do not agree on one episode."
        ) from None
    left = joined.batch["response_mask"].bool()
    if "rollout_is_weights" in joined.batch:
        left &= joined.batch["rollout_is_weights"] > 0
    shape = data.batch["response_mask"].shape
    for name in ("response_mask", "rollout_is_weights"):
        if name in joined.batch:
            data.batch[name] = _cut_apart(joined.batch[name], shape, lengths, episodes)
    if not settings.get("rollout_is") and not settings.get("rollout_rs"):
        return measured
    return {
        **measured,
        "training/rejected_tokens": int((before & ~left).sum()),
        "training/rejected_episodes": int((before.any(dim=-1) & ~left.any(dim=-1)).sum()),
    }


def _end_to_end(rows: torch.Tensor, lengths: Sequence[int], groups: Sequence[Sequence[int]]) -> torch.Tensor:
    return pad_sequence(
        [torch.cat([rows[row, : lengths[row]] for row in group]) for group in groups], batch_first=True
    )


def _cut_apart(
    joined: torch.Tensor, shape: torch.Size, lengths: Sequence[int], groups: Sequence[Sequence[int]]
) -> torch.Tensor:
    rows = torch.zeros(shape, dtype=joined.dtype)
    for group, tokens in zip(groups, joined, strict=True):
        begin = 0
        for row in group:
            rows[row, : lengths[row]] = tokens[begin : begin + lengths[row]]
            begin += lengths[row]
    return rows


def bound_widths(
    shape: torch.Size, parts: Sequence[Sequence[tuple[int, int]]], version: int, decay: float
) -> torch.Tensor:
    """By token (rows x tokens) what is left of its bounds: exp(-decay * age), with its age in versions of the weights.

    ``parts`` of each row are places from which on tokens have a version; ``version`` is that which is trained.
    """
    widths = torch.ones(shape)
    for row, row_parts in zip(widths, parts, strict=True):
        for begin, sampled in row_parts:
            row[begin:] = math.exp(-decay * max(0, version - sampled))
    return widths


def shares_of_tokens(mask: torch.Tensor, keys: Sequence[str]) -> torch.Tensor:
    """The part of its episode's trained tokens that each row has: what a mean over rows has to weigh it by."""
    shares = mask.sum(dim=-1).double()
    for rows in map(list, episodes_of(keys)):
        shares[rows] /= shares[rows].sum().clamp(min=1.0)
    return shares
