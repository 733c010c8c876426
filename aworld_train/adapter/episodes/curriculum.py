"""Chooses training tasks by how often the model solves them (`dataset.curriculum: difficulty`).

A task has the weight ``w = max(0.1, 4p(1 - p))`` with ``p = (1 + passes) / (2 + episodes)``: 1 where it is solved half
of the time, or was never played, and 0.1 where it is always or never solved. It is due again 1/w passes over the data
after it was chosen, give or take half of that, and the task that is due first comes next. So each comes again for ever,
and the order follows from the seed and the rewards alone. A reward counts as a pass as far as it is between 0 and 1.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

_LOWEST = 0.1


class DifficultyOrder:
    """An endless iterator over numbers of tasks, whose state a data loader keeps in its checkpoints."""

    def __init__(self, tasks: int, seed: int, shuffle: bool):
        self._seed = seed
        self._due = np.random.default_rng(seed).random(tasks) if shuffle else np.arange(tasks) / tasks
        self._chosen_at = np.zeros(tasks)
        self._plays = np.zeros(tasks, dtype=np.int64)
        self._passes = np.zeros(tasks)
        self._episodes = np.zeros(tasks, dtype=np.int64)
        self._unnamed: list[int] = []
        self._under_way: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        task = int(np.argmin(self._due))
        self._chosen_at[task] = self._due[task]
        self._plays[task] += 1
        self._set_due(task)
        self._unnamed.append(task)
        return task

    def begin(self, names: Iterable[str]) -> None:
        """Give the tasks that were chosen since the last call the names under which their rewards will come."""
        self._under_way |= zip(names, self._unnamed, strict=True)
        self._unnamed.clear()

    def end(self, rewards: Mapping[str, Sequence[float]]) -> None:
        """Count the rewards of tasks that are under way; others were counted before the run was resumed."""
        for name in rewards.keys() & self._under_way.keys():
            task, values = self._under_way.pop(name), rewards[name]
            self._passes[task] += sum(min(max(value, 0.0), 1.0) for value in values)
            self._episodes[task] += len(values)
            self._set_due(task)

    def weight(self, task: int) -> float:
        rate = (1 + self._passes[task]) / (2 + self._episodes[task])
        return float(max(_LOWEST, 4 * rate * (1 - rate)))

    def _set_due(self, task: int) -> None:
        spread = random.Random(f"{self._seed}/{task}/{self._plays[task]}").uniform(0.5, 1.5)
        self._due[task] = self._chosen_at[task] + spread / self.weight(task)

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, f"_{name}").tolist() for name in _COLUMNS},
            "under_way": dict(self._under_way),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in _COLUMNS:
            getattr(self, f"_{name}")[:] = state[name]
        self._under_way = dict(state["under_way"])


_COLUMNS = ("due", "chosen_at", "plays", "passes", "episodes")
