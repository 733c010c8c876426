"""Stores the keys and values of running sequences, and remembers those of finished ones.

Running sequences occupy the first rows of one padded tensor per layer, so a decode step reads a view and copies
nothing. When a sequence ends, the last row moves into its place, and a ``PrefixStore`` remembers its keys and values
for later requests that begin with the same tokens (the next turn of an episode, or another episode of the task).
"""

from bisect import bisect, bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache

_MIN_TOKENS = 16  # of a beginning that is remembered
_GROWTH = 256  # positions by which the padded length grows


@dataclass(frozen=True)
class CacheShape:
    """Of the model; a number takes 4 bytes."""

    layers: int
    heads: int
    width: int

    @property
    def bytes_per_token(self) -> int:
        return 2 * 4 * self.layers * self.heads * self.width


class RowCache(Cache):  # type: ignore[misc]
    """Keys and values ``[row, head, position, width]`` of the running sequences, one pair of tensors per layer.

    Before each forward pass ``aim`` sets which rows are computed and where their new tokens go; the model's layers
    then call ``update``. The last position of every row takes padding and is never attended to.
    """

    def __init__(self, shape: CacheShape, budget_bytes: int):
        super().__init__(layers=[])
        self.shape = shape
        self.budget_bytes = budget_bytes
        self.rows = 0
        self.capacity = 0
        self.length = 0
        self.keys: list[torch.Tensor] = [torch.empty(0)] * shape.layers
        self.values: list[torch.Tensor] = [torch.empty(0)] * shape.layers
        self._first = 0
        self._positions = torch.empty(0, dtype=torch.long)
        self._row_index = torch.empty(0, dtype=torch.long)
        self._view = 0

    def reserve(self, rows: int, length: int) -> None:
        """Make room for ``rows`` sequences of up to ``length`` tokens; stored keys and values stay.

        The tensors grow ahead of need, but beyond the budget only as far as needed.
        """
        if rows <= self.capacity and length < self.length:
            return
        needed = (length // _GROWTH + 1) * _GROWTH + 1
        capacity = self.capacity if rows <= self.capacity else max(rows, 2 * self.capacity)
        required = max(self.length, needed)
        if capacity * required * self.shape.bytes_per_token > self.budget_bytes:
            capacity, required = rows, needed
        retained = min(self.length, required) - 1
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                new = torch.zeros(capacity, self.shape.heads, required, self.shape.width)
                if self.rows:
                    new[: self.rows, :, :retained] = old[: self.rows, :, :retained]
                store[layer] = new
        self.capacity, self.length = capacity, required

    def aim(self, first: int, positions: torch.Tensor, view: int) -> None:
        """Direct the next forward pass at rows ``first ..``, whose attention may look at ``view`` positions.

        ``positions`` ``[rows, new]`` has the position of each new token; -1 marks padding.
        """
        self._first = first
        self._positions = torch.where(positions < 0, self.length - 1, positions)
        self._row_index = torch.arange(first, first + positions.shape[0])[:, None]
        self._view = view

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values ``[rows, head, new, width]`` and return those that may be attended to."""
        last = self._first + key_states.shape[0]
        key, value = self.keys[layer_idx], self.values[layer_idx]
        key[self._row_index, :, self._positions] = key_states.transpose(1, 2)
        value[self._row_index, :, self._positions] = value_states.transpose(1, 2)
        return key[self._first : last, :, : self._view], value[self._first : last, :, : self._view]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._view

    def copy_out(self, row: int, length: int) -> torch.Tensor:
        """The first ``length`` positions of a row: ``[2, layer, head, length, width]``."""
        return torch.stack(
            [torch.stack([t[row, :, :length] for t in store]) for store in (self.keys, self.values)]
        )

    def copy_in(self, row: int, stored: torch.Tensor, length: int) -> None:
        for store, source in zip((self.keys, self.values), stored, strict=True):
            for layer, tensor in enumerate(store):
                tensor[row, :, :length] = source[layer, :, :length]

    def move(self, source: int, target: int, length: int) -> None:
        for store in (self.keys, self.values):
            for tensor in store:
                tensor[target, :, :length] = tensor[source, :, :length]


class PrefixStore:
    """Sequences computed with the present weights, found by their first tokens; the least recently used go first."""

    def __init__(self, budget_bytes: int):
        self.budget_bytes = budget_bytes
        self.bytes = 0
        self._stored: OrderedDict[tuple[int, ...], torch.Tensor] = OrderedDict()
        self._sorted: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._stored)

    def find(self, tokens: list[int]) -> tuple[int, torch.Tensor | None]:
        """Length, keys and values of the longest remembered beginning, which leaves the last token out."""
        place = bisect(self._sorted, tuple(tokens))
        # The sequence with the most common tokens is beside these in the order.
        beside = self._sorted[max(place - 1, 0) : place + 1]
        shared, nearest = max(((_common_prefix(key, tokens), key) for key in beside), default=(0, ()))
        if shared < _MIN_TOKENS:
            return 0, None
        self._stored.move_to_end(nearest)
        return min(shared, len(tokens) - 1), self._stored[nearest]

    def add(self, tokens: list[int], stored: torch.Tensor) -> None:
        key = tuple(tokens)
        if key in self._stored or len(key) < _MIN_TOKENS or stored.nbytes > self.budget_bytes:
            return
        self._stored[key] = stored
        insort(self._sorted, key)
        self.bytes += stored.nbytes
        while self.bytes > self.budget_bytes:
            oldest, forgotten = self._stored.popitem(last=False)
            del self._sorted[bisect_left(self._sorted, oldest)]
            self.bytes -= forgotten.nbytes

    def clear(self) -> None:
        self._stored.clear()
        self._sorted.clear()
        self.bytes = 0


def _common_prefix(first: tuple[int, ...], second: list[int]) -> int:
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
