"""Advantages of whole samples, however many rows each has.

VeRL's estimators take each row for a sample of its own. An episode whose agent begins a new context, or that has
several agents, has more than one. So the rows of a sample are laid end to end, an estimator sees them as one row with
one reward, and its advantages are cut apart again. A sample is an episode; where the scorer gives an agent a reward of
its own, the rows of that agent are a sample, which is compared with the same agent's in other episodes of the task.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto

Estimator = Callable[[DataProto], DataProto]
"""Adds ``advantages`` and ``returns`` to samples with ``token_level_rewards`` and ``response_mask``."""


@dataclass(frozen=True)
class Sample:
    """Rows with one reward.

    Attributes:
        group: Samples of a group are compared with each other.
        rows: Their places in the batch, in the order in which they were played.
    """

    group: str
    rows: Sequence[int]


def samples_of(keys: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """The samples of a batch.

    Args:
        keys: ``{task}_{episode}_{number}`` of each row.
        facts: What VeRL calls the extra fields of each row: its ``agent`` and the scorer's ``reward_extra_info``.
    """
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
    """Those with others in their group: an agent may be asked in one episode of a task alone.

    VeRL's estimators take the reward of a sample without others for its advantage.
    """
    sizes = Counter(sample.group for sample in samples)
    return [sample for sample in samples if sizes[sample.group] > 1]


def scored_once(scores: torch.Tensor, samples: Sequence[Sample]) -> torch.Tensor:
    """Scores (rows x tokens), in which each row of a sample has its reward, with that of the last row alone."""
    once = torch.zeros_like(scores)
    for sample in samples:
        once[sample.rows[-1]] = scores[sample.rows[-1]]
    return once


def estimate(data: DataProto, lengths: Sequence[int], samples: Sequence[Sample], by: Estimator) -> None:
    """Give a batch of rows the advantages and returns of its samples; other rows get zeros.

    Args:
        data: Its tensors of rows x tokens, among them ``token_level_rewards`` and ``response_mask``.
        lengths: The tokens of each row, which is filled up to the longest.
        samples: Of the batch.
        by: VeRL's estimator.
    """
    if not samples:
        data.batch["advantages"] = data.batch["returns"] = torch.zeros_like(data.batch["token_level_rewards"])
        return
    names = [name for name in ("token_level_rewards", "response_mask", "values") if name in data.batch]
    columns = {name: _end_to_end(data.batch[name], lengths, samples) for name in names}
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
            estimated.batch[name], data.batch["response_mask"].shape, lengths, samples
        )


def _end_to_end(rows: torch.Tensor, lengths: Sequence[int], samples: Sequence[Sample]) -> torch.Tensor:
    return pad_sequence(
        [torch.cat([rows[row, : lengths[row]] for row in sample.rows]) for sample in samples],
        batch_first=True,
    )


def _cut_apart(
    joined: torch.Tensor, shape: torch.Size, lengths: Sequence[int], samples: Sequence[Sample]
) -> torch.Tensor:
    rows = torch.zeros(shape, dtype=joined.dtype)
    for sample, tokens in zip(samples, joined, strict=True):
        begin = 0
        for row in sample.rows:
            rows[row, : lengths[row]] = tokens[begin : begin + lengths[row]]
            begin += lengths[row]
    return rows


def shares_of_tokens(mask: torch.Tensor, keys: Sequence[str]) -> torch.Tensor:
    """The part of its episode's trained tokens that each row has: what a mean over rows has to weigh it by.

    Args:
        mask: Rows x tokens.
        keys: As in ``samples_of``.
    """
    tokens = mask.sum(dim=-1).double()
    episodes = [key.rsplit("_", 1)[0] for key in keys]
    totals: dict[str, float] = {}
    for episode, count in zip(episodes, tokens.tolist(), strict=True):
        totals[episode] = totals.get(episode, 0.0) + count
    return tokens / torch.tensor([max(totals[episode], 1.0) for episode in episodes])
