"""The folder of an evaluation that begins: of a name that is free, and not of one that is under way."""

import os
from pathlib import Path

import pytest

from aworld_train.errors import UsageError
from aworld_train.evaluation.folder import folder_to_resume, new_folder
from aworld_train.training.run_files import lock_folder


def test_an_evaluation_under_way_is_told_from_one_that_has_ended(tmp_path: Path) -> None:
    folder = new_folder(tmp_path, "one", is_chosen=True)
    folder.mkdir()
    lock = lock_folder(folder)
    running = (
        rf"{folder} is running: process {os.getpid()} .*runs attach {folder}`.*or choose another --name\."
    )
    with pytest.raises(UsageError, match=running):
        new_folder(tmp_path, "one", is_chosen=True)
    assert new_folder(tmp_path, "one", is_chosen=False) == tmp_path / "eval-one-2"
    lock.close()
    with pytest.raises(UsageError, match=f"{folder} is not empty"):
        new_folder(tmp_path, "one", is_chosen=True)


def test_a_folder_of_runs_that_is_not_there_has_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such folder: .*/rusn"):
        folder_to_resume(tmp_path / "rusn", "one", is_chosen=False)
