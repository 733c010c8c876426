"""Shows a recorded run on the terminal, as `train` shows a run that is under way.

    python -m tests.replayed_run FOLDER

A test says how far it is: FOLDER/moment has two numbers, how many episodes have ended and how many rows of metrics
there are, and further lines that are shown as notes, or written to stderr if they begin so; an empty file ends the
program as a run ends, and "fail" with an error.
"""

import sys
import time
from pathlib import Path

from rich.console import Console

from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import TrainingFailure
from aworld_train.recipe.schema import Recipe
from aworld_train.training.progress import Work
from aworld_train.training.run import terminate_as_interrupt
from aworld_train.training.run_folder import open_run_folder
from aworld_train.training.run_metrics import RunMetrics
from aworld_train.training.run_status import RunStatus
from aworld_train.training.screen import train_progress
from aworld_train.training.summary import RunSummary
from tests.locations import REPOSITORY

RECORDED = REPOSITORY / "tests/data/recorded_run"


def recipe() -> Recipe:
    """The recipe of the recorded run, as far as a display needs it."""
    recipe = Recipe(name="recorded")
    recipe.trainer.steps, recipe.trainer.val_every = 4, 2
    recipe.trainer.batch_size = recipe.rollout.n = 4
    return recipe


class Replay:
    """The record of the recorded run, which goes on as far as it is told."""

    def __init__(self, folder: Path):
        self.summary = RunSummary("recorded", steps_planned=4)
        run_folder = open_run_folder(folder / "run", VerlFramework(), {"name": "recorded"}, [], resume=False)
        self._metrics = run_folder.path / "logs" / "metrics.jsonl"
        self._metrics.touch()
        self._episodes = run_folder.episodes
        self.record = RunMetrics(run_folder, self.summary, self._metrics, 0)
        self.status = RunStatus(recipe(), self.record, val_tasks=8)
        self._began = time.monotonic()

    def go_on(self, episodes: int, rows: int) -> None:
        """Let so many episodes and rows be there."""
        self._episodes.write_text(_first("episodes.jsonl", episodes))
        self._metrics.write_text(_first("verl-metrics.jsonl", rows))
        self.record.refresh(time.monotonic() - self._began)


def _first(name: str, lines: int) -> str:
    return "".join((RECORDED / name).read_text().splitlines(keepends=True)[:lines])


def main(folder: Path) -> None:
    replay = Replay(folder)
    moment, notes = folder / "moment", 0
    with terminate_as_interrupt(), train_progress(Console(stderr=True), quiet=False) as progress:
        while lines := moment.read_text().splitlines():
            if lines == ["fail"]:
                raise TrainingFailure("The engine died.")
            replay.go_on(*map(int, lines[0].split()))
            for line in lines[1 + notes :]:
                if line.startswith("stderr: "):
                    sys.stderr.write(f"{line}\n")
                else:
                    progress.note(line)
            notes = len(lines) - 1
            replay.status.show(progress, Work("update_actor", 3.0))
            time.sleep(0.05)
    sys.stdout.write("the run has ended\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
