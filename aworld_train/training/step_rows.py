"""The rows of ``metrics.jsonl``: one object per step, from one or more attempts at a run.

A framework may report several rows for a step, at several times. The project's own names come first; everything that
the framework reported is stored under the framework's name.
"""

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import StepRow
from aworld_train.atomic import write_text
from aworld_train.json_lines import split_lines

_UNKNOWN = sys.maxsize


class StepRows:
    """One row per step; of an earlier attempt those up to ``last_step``, the step of its checkpoint."""

    def __init__(self, framework: str, file: Path, last_step: int) -> None:
        self._framework, self._file = framework, file
        self.rows = {line["step"]: line for line in split_lines(file)[0] if line["step"] <= last_step}
        self.validated: set[int] = set()
        self.last_trained = max((step for step, row in self.rows.items() if "loss" in row), default=0)
        self._last_written = self._write_all()

    def add(self, step_row: StepRow) -> int:
        """Merge a framework's report about a step into the step's row; returns the step."""
        step = step_row.step
        row = self.rows.setdefault(step, {"step": step})
        row |= _finite(step_row.figures)
        row.setdefault(self._framework, {}).update(_finite(step_row.raw))
        if step_row.validated:
            self.validated.add(step)
        if "loss" in row:
            self.last_trained = max(self.last_trained, step)
        return step

    def figures(self, name: str) -> dict[int, Any]:
        return {step: row[name] for step, row in sorted(self.rows.items()) if row.get(name) is not None}

    def write(self, steps: Iterable[int]) -> None:
        """Write the rows of these steps: behind the others if they are new, otherwise the whole file."""
        new, last = sorted(steps), self._last_written
        self._last_written = _UNKNOWN  # a line may be cut off by a full disk
        if new[0] > last:
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(map(self._line, new))
            self._last_written = new[-1]
        else:
            self._last_written = self._write_all()

    def _write_all(self) -> int:
        """Write all rows; returns the last step."""
        write_text(self._file, "".join(map(self._line, sorted(self.rows))))
        return max(self.rows, default=-1)

    def _line(self, step: int) -> str:
        return json.dumps(self.rows[step], ensure_ascii=False) + "\n"


def _finite(figures: Any) -> dict[str, Any]:
    """The figures without NaN and infinities, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
