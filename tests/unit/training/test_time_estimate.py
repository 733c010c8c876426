"""How long a run will take is said by an earlier run of the same work, and by nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.training.time_estimate import time_estimate
from tests.run_folders import RECIPE, make_run


def make_earlier(runs: Path, **made: Any) -> Path:
    folder = make_run(runs, "earlier", **made)
    (folder / "recipe.yaml").write_text(recipes.dump(dict(recipes.read(RECIPE).unresolved)))
    return folder


@pytest.mark.parametrize(
    ("made", "changes", "expected"),
    [
        ({}, [], 75.0),
        ({}, ["trainer.steps=12", "trainer.seed=3"], 105.0),
        ({}, ["trainer.batch_size=2"], None),
        ({"status": "failed"}, [], None),
        ({"attempts": [{}, {}]}, [], 6 + 69 / 2),
        ({"attempts": None}, [], 75.0),
    ],
)
def test_steps_are_counted_with_the_seconds_of_a_run_of_the_same_work(
    made: dict[str, Any], changes: list[str], expected: float | None, tmp_path: Path
) -> None:
    make_earlier(tmp_path, **made)
    estimate = time_estimate(recipes.read({**RECIPE, "name": "next"}, changes), tmp_path)
    assert (estimate and estimate.seconds) == expected


def test_the_run_that_tells_is_named_and_validations_are_counted(tmp_path: Path) -> None:
    folder = make_earlier(tmp_path)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[-1]["val_seconds"] = 9.0
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for total, changes in (
        ("1:27", ["trainer.val_every=2"]),
        ("1:18", ["trainer.val_every=0"]),
        ("1:09", ["trainer.val_every=0", "trainer.val_ends=false"]),
    ):
        recipe = recipes.read({**RECIPE, "name": "next"}, ["trainer.steps=3", *changes])
        estimate = time_estimate(recipe, tmp_path)
        assert estimate is not None
        assert (
            estimate.sentence
            == f"About {total}, as earlier went (on h, 2026-01-02): 3.0 s a step, 9.0 s a validation."
        )


def test_without_runs_and_beside_a_broken_one_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "recipe.yaml").write_text("{")
    for folder in (tmp_path / "runs", tmp_path / "none"):
        assert time_estimate(recipes.read(RECIPE), folder) is None
