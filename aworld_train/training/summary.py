"""What a run came to, in one small file that is written whatever happens.

``summary.json`` is rewritten as the run goes and a last time at its end, so that even a run that was killed leaves a
true account up to its last moments (its status then still says ``running``).
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text

NAME = "summary.json"


@dataclass
class Validation:
    """Accuracy over ``n`` validation episodes that could be scored; ``errors`` of them could not."""

    accuracy: float | None = None
    n: int = 0
    errors: int = 0


@dataclass
class RunSummary:
    """The account of a run.

    Attributes:
        status: ``running``, ``completed``, ``failed`` or ``interrupted``.
        episodes: training episodes played, all outcomes.
        trained_episodes: of these, the ones that were scored and could be trained on.
        environment_losses: episodes whose tool environment went away under them, the ones played again included.
        outcomes: how training episodes ended, by name of the outcome.
        unscored: training episodes that could not be scored, by scorer and what became of the score.
        suspicions: training episodes that make one ask how their reward was won, by sign (see ``reward suspects``).
        correct_with_tool: share of the correct episodes of the last validation in which a tool was called.
        checkpoint: directory of the last checkpoint's model, in Hugging Face format.
        seconds: wall time, summed over the attempts of a resumed run.
        error: ``{kind, message}`` of what ended a run that failed.
    """

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
    unscored: dict[str, int] = field(default_factory=dict)
    suspicions: dict[str, int] = field(default_factory=dict)
    val: dict[str, Validation] = field(
        default_factory=lambda: {"before": Validation(), "after": Validation()}
    )
    correct_with_tool: float | None = None
    checkpoint: str | None = None
    seconds: float = 0.0
    run_dir: str = ""
    error: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)

    def write(self, run_dir: Path) -> None:
        """Replace the run folder's summary in one step."""
        write_text(run_dir / NAME, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + os.linesep)


def read_seconds(run_dir: Path) -> float:
    """Wall time that earlier attempts of a run took; 0 where there was none."""
    try:
        return float(json.loads((run_dir / NAME).read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
