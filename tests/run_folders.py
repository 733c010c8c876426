"""Folders of runs, as runs leave them."""

import json
from pathlib import Path
from typing import Any

import yaml

from aworld_train.training.summary import RunSummary, Validation

RECIPE: dict[str, Any] = {"name": "one", "model": {"path": "models/tiny"}, "trainer": {"steps": 2}}
ROWS: list[dict[str, Any]] = [
    {"step": 0, "val_accuracy": 0.5, "val_n": 16},
    {"step": 1, "reward": 0.25, "loss": 0.5, "seconds": 2.0, "verl": {"actor/grad_norm": 3.0}},
    {
        "step": 2,
        "reward": 0.5,
        "loss": None,
        "seconds": 4.0,
        "val_accuracy": 0.75,
        "outcomes": {"answered": 8},
        "verl": {"actor/grad_norm": 2.0},
    },
]


def make_run(
    runs: Path,
    name: str,
    *,
    status: str = "completed",
    started: str = "2026-01-02T03:04:05Z",
    **manifest: Any,
) -> Path:
    """A run of two steps."""
    folder = runs / name
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, "name": name}))
    (folder / "run.lock").touch()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    attempt = {"started": started, "from_step": 0, "host": "h", "command": "aworld-train train one.yaml"}
    content = {"aworld_train": "0.1.0", "packages": {}, "data_sha256": {}, "attempts": [attempt], **manifest}
    (folder / "manifest.json").write_text(json.dumps(content))
    summary = RunSummary(
        name,
        status,
        steps_planned=2,
        steps_done=2,
        outcomes={"answered": 15, "timeout": 1},
        val={"before": Validation(0.5, 16), "after": Validation(0.75, 16)},
        reward=0.5,
        rewards=[0.25, 0.5],
        seconds=75.0,
        run_dir=str(folder),
    )
    summary.write(folder)
    return folder
