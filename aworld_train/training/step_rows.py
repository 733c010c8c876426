"""The rows of ``metrics.jsonl``: one object per step, gathered from one or more attempts at a run.

A framework may report several rows for a step, at several times; a step that is validated again after a resume has one
row. The project's own names come first; everything that the framework reported is stored under the framework's name.
"""

import json
import math
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import StepRow
from aworld_train.json_lines import split_lines


class StepRows:
    """One row per step.

    Args:
        framework: The framework's name.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self.rows: dict[int, dict[str, Any]] = {}
        self.validated: set[int] = set()

    def load(self, metrics: Path, last_step: int) -> None:
        """Load the rows of an earlier attempt up to ``last_step``, the step of its checkpoint."""
        for line in split_lines(metrics)[0]:
            if line["step"] <= last_step:
                self.rows[line["step"]] = line

    def add(self, step_row: StepRow) -> int:
        """Merge a framework's report about a step into the step's row; returns the step."""
        row = self.rows.setdefault(step_row.step, {"step": step_row.step})
        row |= _finite(step_row.figures)
        row.setdefault(self._framework, {}).update(_finite(step_row.raw))
        if step_row.validated:
            self.validated.add(step_row.step)
        return step_row.step

    @property
    def last_trained(self) -> int:
        """The last step in which weights were updated; 0 for none."""
        return max((step for step, row in self.rows.items() if "loss" in row), default=0)

    def text(self) -> str:
        """The rows as JSON lines, in order of steps."""
        return "".join(json.dumps(self.rows[step], ensure_ascii=False) + "\n" for step in sorted(self.rows))


def _finite(figures: Any) -> dict[str, Any]:
    """The figures without NaN and infinities, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
