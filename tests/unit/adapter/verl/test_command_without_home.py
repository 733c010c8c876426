"""A user whose home cannot be written trains all the same: what libraries keep there has another place."""

from pathlib import Path

import pytest

from aworld_train.adapter.verl.command import verl_environment
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.recipe.schema import Recipe


@pytest.mark.parametrize("can_be_written", [True, False])
def test_data_is_cached_in_the_private_folder_where_the_home_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_written: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path if can_be_written else "/proc"))
    private = PrivateFolder(tmp_path / "private")
    variables = verl_environment(Recipe(), tmp_path / "metrics.jsonl", private)
    assert variables.get("HF_DATASETS_CACHE") == (None if can_be_written else str(private.scratch))
