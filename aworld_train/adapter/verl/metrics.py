"""VeRL's metrics in the project's words, one object per step.

VeRL writes a line per log call: a validation before training comes as step 0, one after a resume repeats a step.
``StepRows`` keeps one row per step, in order. The project's own names come first; everything VeRL said stays under
``verl``.
"""

import json
import math
from pathlib import Path
from typing import Any

_NAMES = {
    "reward": "critic/score/mean",
    "response_tokens": "response_length/mean",
    "turns": "num_turns/mean",
    "loss": "actor/loss",
    "entropy": "actor/entropy",
    "grad_norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "lr": "actor/lr",
    "rollout_probs_diff_max": "training/rollout_probs_diff_max",
    "tokens_per_second": "perf/throughput",
    "seconds": "timing_s/step",
    "memory_gb": "actor/perf/cpu_memory_used_gb",
}


class StepRows:
    """One row per step, gathered from one or more attempts at a run."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def load(self, metrics: Path, last_step: int) -> None:
        """Take over the rows of an earlier attempt up to the step that its checkpoint holds."""
        for line in read_lines(metrics):
            if line["step"] <= last_step:
                self.rows[line["step"]] = line

    def add(self, line: dict[str, Any]) -> int:
        """Take a line of VeRL's file logger; returns its step."""
        step = int(line["step"])
        # JSON has no NaN, and readers of metrics.jsonl should not have to know Python's dialect of it.
        data = {
            key: None if isinstance(v, float) and not math.isfinite(v) else v
            for key, v in line["data"].items()
        }
        row = self.rows.setdefault(step, {"step": step})
        row |= {name: data[key] for name, key in _NAMES.items() if key in data}
        row.setdefault("verl", {}).update(data)
        return step

    @property
    def last_trained(self) -> int:
        """The last step in which weights were updated; 0 for none."""
        return max((step for step, row in self.rows.items() if "loss" in row), default=0)

    def text(self) -> str:
        """The rows as JSON lines, in order of steps."""
        return "".join(json.dumps(self.rows[step], ensure_ascii=False) + "\n" for step in sorted(self.rows))


class Tail:
    """Reads a growing file of JSON lines, each line once and only when it is whole."""

    def __init__(self, path: Path):
        self._path = path
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """The lines that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a file of JSON lines; none where it does not exist."""
    return Tail(path).read()
