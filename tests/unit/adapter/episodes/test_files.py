"""The files that tell a run's workers how to play and score."""

from pathlib import Path

import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.files import episode_files, to_yaml, write_files
from aworld_train.adapter.episodes.paths import EPISODES_FILE, REWARD_FILE
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.episode.outcome import Outcome, Treatment


def test_both_files_are_in_the_folder_and_are_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    files = episode_files(recipes.load({"name": "a"}))
    for written in (dict.fromkeys(files, "of an earlier start"), files):
        write_files(folder, written)
    assert sorted(file.name for file in folder.iterdir()) == ["episodes.yaml", "reward.yaml"]
    assert read_settings(str(folder / EPISODES_FILE)).treatment(Outcome.answered) is Treatment.trained
    assert yaml.safe_load((folder / REWARD_FILE).read_text())["function"] is None


def test_a_file_keeps_the_order_and_the_letters_of_the_recipe() -> None:
    assert to_yaml({"b": "é", "a": [1]}) == "b: é\na:\n- 1\n"
