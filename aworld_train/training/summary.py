"""The summary of a run, rewritten while it runs: that of a killed run is correct, with ``status`` ``running``."""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text
from aworld_train.json_lines import read_json
from aworld_train.training.run_files import SUMMARY


@dataclass
class Validation:
    """Accuracy over ``n`` validation episodes that could be scored; ``errors`` of them could not."""

    accuracy: float | None = None
    n: int = 0
    errors: int = 0


@dataclass
class RunSummary:
    """The figures of a run: the keys of its ``summary.json``, which the reference of the run folder explains."""

    name: str
    status: str = "running"
    steps_planned: int = 0
    steps_done: int = 0
    episodes: int = 0
    trained_episodes: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    environment_losses: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    unscored: dict[str, int] = field(default_factory=dict)
    suspicions: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    reward: float | None = None
    rewards: list[float] = field(default_factory=list)
    val: dict[str, Validation] = field(
        default_factory=lambda: {"before": Validation(), "after": Validation()}
    )
    loss: float | None = None
    val_loss: dict[str, float | None] = field(default_factory=lambda: {"before": None, "after": None})
    correct_with_tool: float | None = None
    checkpoint: str | None = None
    seconds: float = 0.0
    run_dir: str = ""
    restarts: list[dict[str, Any]] = field(default_factory=list)
    stopped_early: str | None = None
    remark: str | None = None
    alarms: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, str] | None = None

    def take_up(self, step: int) -> None:
        """Keep what earlier attempts at the run left; steps after this one are trained again."""
        self.seconds = read_seconds(Path(self.run_dir))
        if earlier := read_summary(Path(self.run_dir)):
            self.val["before"] = earlier.val["before"]
            self.restarts, self.alarms = earlier.restarts, earlier.alarms
        self._forget_after(step)

    def restart_from(self, step: int, error: str) -> None:
        self.restarts.append({"from_step": step, "error": error})
        self._forget_after(step)

    def _forget_after(self, step: int) -> None:
        self.alarms = [alarm for alarm in self.alarms if alarm["step"] <= step]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, run_dir: Path) -> None:
        write_text(run_dir / SUMMARY, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + os.linesep)


def read_summary(run_dir: Path) -> RunSummary | None:
    """The summary in a run folder; None if it cannot be read."""
    try:
        content = read_json(run_dir / SUMMARY)
        known = {key.name: content[key.name] for key in fields(RunSummary) if key.name in content}
        known["val"] = {name: Validation(**figures) for name, figures in known["val"].items()}
        return RunSummary(**known)
    except (KeyError, TypeError, AttributeError):
        return None


def read_seconds(run_dir: Path) -> float:
    """Wall time of earlier attempts at a run or an evaluation."""
    seconds = read_json(run_dir / SUMMARY).get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else 0.0
