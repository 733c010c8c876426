"""Rows of a pass as one trie of tokens: what several rows begin with is there once.

Tokens are packed depth first: those of a row are some of the packed ones, in their order, and a *segment*, within which
nothing branches, lies in one piece. Rows are compared by their tokens alone: an episode's rows, a group's episodes and
what all tasks begin with need no names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

Row = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class TokenTrie:
    """The unique tokens of some rows, and where those of each row are.

    ``tokens`` and ``positions`` (their depths) are ``[unique]``; ``paths`` ``[tokens of all rows]`` has the index of
    each row's tokens among them, one row after the other. ``lengths`` of the segments add up to ``unique``, and
    ``ancestors`` has the numbers of the segments above each, from the root.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    paths: torch.Tensor
    lengths: list[int]
    ancestors: list[tuple[int, ...]]

    def to(self, device: torch.device) -> "TokenTrie":
        tensors = {name: getattr(self, name).to(device) for name in ("tokens", "positions", "paths")}
        return replace(self, **tensors)


@dataclass(frozen=True)
class Pass:
    """Rows that are trained together, by their index, and how many unique tokens they have."""

    rows: list[int]
    unique: int


def token_trie(rows: Sequence[Row]) -> TokenTrie:
    order = _by_tokens(rows)
    paths: list[Row] = [np.empty(0, np.int64)] * len(rows)
    tokens, positions, starts = [], [], {0}
    size, above = 0, np.empty(0, np.int64)
    for index, common in zip(order, _shared(rows, order), strict=True):
        new = rows[index][common:]
        if common and len(new):
            starts.add(int(above[common - 1]) + 1)
        starts.add(size)
        tokens.append(new)
        positions.append(np.arange(common, common + len(new)))
        above = paths[index] = np.concatenate([above[:common], np.arange(size, size + len(new))])
        size += len(new)
    bounds = sorted(starts - {size})
    depths = np.concatenate(positions)
    return TokenTrie(
        torch.from_numpy(np.concatenate(tokens)),
        torch.from_numpy(depths),
        torch.from_numpy(np.concatenate(paths)),
        np.diff([*bounds, size]).tolist(),
        _ancestors([paths[index] for index in order], depths, bounds),
    )


def passes(rows: Sequence[Row], *, max_rows: int | None = None, max_tokens: int | None = None) -> list[Pass]:
    """Divide rows so that as few tokens as possible are computed in several passes, in the fewest passes that do.

    A pass has ``max_rows``, or as many rows as have ``max_tokens`` unique ones together, but one at least.
    """
    order = _by_tokens(rows)
    shared = _shared(rows, order)
    # Of the first rows, by their number: tokens, passes and where the last pass begins.
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for end in range(1, len(order) + 1):
        options: list[tuple[int, int, int]] = []
        unique = above = 0
        for start in range(end - 1, -1, -1):
            unique += len(rows[order[start]]) - above
            above = shared[start]
            is_full = end - start > max_rows if max_rows else unique > (max_tokens or unique)
            if options and is_full:
                break
            options.append((best[start][0] + unique, best[start][1] + 1, start))
        best.append(min(options))
    divided: list[Pass] = []
    end = len(order)
    while end:
        tokens, _, start = best[end]
        divided.append(Pass([int(index) for index in order[start:end]], tokens - best[start][0]))
        end = start
    return divided[::-1]


def at_least(divided: list[Pass], count: int, rows: Sequence[Row]) -> list[Pass]:
    """As many passes as the rank that has the most: ranks wait for one another in each."""
    while len(divided) < count:
        largest = max(range(len(divided)), key=lambda number: len(divided[number].rows))
        order = divided[largest].rows
        shared = _shared(rows, order)
        cut = min(range(1, len(order)), key=lambda place: shared[place])
        halves = [
            Pass(part, sum(len(rows[index]) for index in part) - sum(_shared(rows, part)))
            for part in (order[:cut], order[cut:])
        ]
        divided = [*divided[:largest], *halves, *divided[largest + 1 :]]
    return divided


def _by_tokens(rows: Sequence[Row]) -> list[int]:
    """Rows with the same beginning are neighbours, and a row comes before those that continue it."""
    return sorted(range(len(rows)), key=lambda index: rows[index].astype(">i8").tobytes())


def _shared(rows: Sequence[Row], order: Sequence[int]) -> list[int]:
    """How many tokens each row has in common with the one before it."""
    return [0, *(_common(rows[before], rows[index]) for before, index in pairwise(order))]


def _common(one: Row, other: Row) -> int:
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


def _ancestors(paths: Sequence[Row], depths: Row, bounds: list[int]) -> list[tuple[int, ...]]:
    """Of each segment, from a path that it is part of."""
    segment_of = np.searchsorted(bounds, np.arange(len(depths)), side="right") - 1
    first_path: dict[int, Row] = {}
    for path in paths:
        for segment in np.unique(segment_of[path]):
            first_path.setdefault(int(segment), path)
    ancestors: list[tuple[int, ...]] = []
    for segment, start in enumerate(bounds):
        depth = int(depths[start])
        above = int(segment_of[first_path[segment][depth - 1]]) if depth else None
        ancestors.append(() if above is None else (*ancestors[above], above))
    return ancestors
