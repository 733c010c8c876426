"""In which order rows are trained, so that an update takes as many episodes as the recipe says.

VeRL divides a batch by rows. Here each mini-batch gets as many episodes as the others with all their rows; rows that
train nothing fill it up, so that all mini-batches and all ranks have as many. Where shared prefixes are computed once,
the episodes of a task are trained by as few ranks and in as few mini-batches as that allows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions


@dataclass(frozen=True)
class Arrangement:
    """How a batch is trained: ``rows`` with those that fill up, and each mini-batch's ``members`` as places."""

    episodes: int
    updates: int
    rows: int
    members: Sequence[Sequence[int]]
    keeps_groups: bool = False

    def order(self, tokens: Sequence[int], ranks: int) -> list[int]:
        """The places of all rows in the order in which VeRL divides them, with about as many tokens for each rank."""
        missing = self.rows - sum(map(len, self.members))
        fill = iter(range(len(tokens) - missing, len(tokens)))
        parts: list[list[int]] = [[] for _ in range(ranks)]
        for members in self.members:
            whole = [*members, *(next(fill) for _ in range(self.rows // self.updates - len(members)))]
            if self.keeps_groups:
                size = len(whole) // ranks
                for rank, part in enumerate(parts):
                    part += whole[rank * size : (rank + 1) * size]
                continue
            work = calculate_workload(torch.tensor([tokens[place] for place in whole]))
            for part, chosen in zip(
                parts, get_seqlen_balanced_partitions(work, ranks, equal_size=True), strict=True
            ):
                part += [whole[index] for index in chosen]
        return [place for part in parts for place in part]


def arrange(keys: Sequence[str], updates: int, multiple: int, *, keeps_groups: bool = False) -> Arrangement:
    """Divide a batch into ``updates`` mini-batches whose rows are a multiple of ``multiple``."""
    episodes: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        episodes.setdefault(key.rsplit("_", 1)[0], []).append(place)
    updates = min(updates, len(episodes))
    members = (_by_groups if keeps_groups else _by_rows)(episodes, updates)
    rows_of_update = math.ceil(max(map(len, members)) / multiple) * multiple
    return Arrangement(len(episodes), updates, rows_of_update * updates, members, keeps_groups)


def _by_groups(episodes: Mapping[str, list[int]], updates: int) -> list[list[int]]:
    """The episodes of one task one behind the other, cut where the updates have equally many."""
    groups: dict[str, list[list[int]]] = {}
    for key, rows in episodes.items():
        groups.setdefault(key.rsplit("_", 1)[0], []).append(rows)
    members: list[list[int]] = [[] for _ in range(updates)]
    for number, rows in enumerate(chain.from_iterable(groups.values())):
        members[number * updates // len(episodes)] += rows
    return members


def _by_rows(episodes: Mapping[str, list[int]], updates: int) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(updates)]
    # The longest episodes first, one for each update and then one for each in reverse: all get about as many rows.
    for number, rows in enumerate(sorted(episodes.values(), key=len, reverse=True)):
        is_reverse, update = number // updates % 2, number % updates
        members[updates - 1 - update if is_reverse else update] += rows
    return [sorted(rows) for rows in members]
