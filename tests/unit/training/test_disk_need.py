"""The disk that a run takes is said, and a run that the disk plainly cannot hold is refused."""

import shutil
from pathlib import Path

import pytest

from aworld_train import recipe
from aworld_train.errors import UsageError
from aworld_train.training.disk_need import check_disk, disk_need

STEPS = "trainer.steps=40"


def test_a_run_takes_its_kept_checkpoints_the_best_one_the_one_being_written_and_its_episodes() -> None:
    loaded = recipe.load("quickstart", [STEPS, "trainer.save_every=5"])
    need = disk_need(loaded, 10**9)
    assert (need.checkpoint, need.checkpoints) == (16 * 10**9, loaded.trainer.keep_checkpoints + 2)
    assert need.episodes > 40 * loaded.trainer.batch_size * loaded.rollout.n * 5000
    assert f"{need.checkpoints} checkpoints of 16.0 GB" in need.sentence
    assert disk_need(recipe.load("quickstart", ["model.lora.rank=8"]), 10**9).checkpoint == 8 * 10**9
    assert disk_need(recipe.load("quickstart", [STEPS, "trainer.save_every=40"]), 1).checkpoints == 1
    assert disk_need(recipe.load("quickstart", [STEPS, "trainer.save_every=0"]), 1).checkpoints == 0


def test_little_or_unknown_space_is_not_worth_a_line() -> None:
    loaded = recipe.load("quickstart", [STEPS])
    assert disk_need(loaded, 0).sentence == disk_need(loaded, 344_448).sentence == ""


def test_a_run_that_the_disk_cannot_hold_is_refused_and_what_is_written_already_counts(
    tmp_path: Path,
) -> None:
    parameters = (shutil.disk_usage(tmp_path).free + 10**12) // 48
    need = disk_need(recipe.load("quickstart", [STEPS, "trainer.save_every=5"]), parameters)
    run = tmp_path / "runs" / "run"
    with pytest.raises(
        UsageError, match=r"GB are free for .*run, and its checkpoints take .*keep_checkpoints"
    ):
        check_disk(need, run, 2)
    (run / "checkpoints").mkdir(parents=True)
    with (run / "checkpoints" / "model.pt").open("wb") as file:
        file.truncate(2 * 10**12)
    check_disk(need, run, 2)
