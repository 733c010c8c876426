"""The two files that tell a run's workers how to play and score episodes; every framework writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.episodes.paths import EPISODES_FILE, REWARD_FILE
from aworld_train.adapter.episodes.scoring import reward_plan
from aworld_train.adapter.episodes.settings import episode_settings
from aworld_train.atomic import write_text
from aworld_train.recipe.schema import Recipe


def episode_files(recipe: Recipe) -> dict[str, str]:
    return {EPISODES_FILE: to_yaml(episode_settings(recipe)), REWARD_FILE: to_yaml(reward_plan(recipe))}


def to_yaml(content: Any) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / name, text)
