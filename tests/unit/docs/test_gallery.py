"""The gallery has every recipe that comes along: its commands, and the curve of a run where it needs no GPU."""

import re

import pytest

from aworld_train import recipe as recipes
from aworld_train.recipe.device import on_cpu
from tests.code_blocks import blocks_of
from tests.locations import REPOSITORY

PAGE = REPOSITORY / "docs/gallery.md"
TRAINED = [name for name in recipes.shipped() if not recipes.is_base(name) and not recipes.is_benchmark(name)]
_CHECKPOINT = re.compile(r"runs/([\w.-]+)/checkpoints/global_step_(\d+)")


@pytest.mark.parametrize("name", TRAINED)
def test_a_recipe_has_its_commands_and_its_curve_or_what_it_needs(name: str) -> None:
    _, _, section = PAGE.read_text("utf-8").partition(f"\n### `{name}`\n")
    section = re.split(r"\n##+ ", section)[0]
    header = re.findall(r"(?m)^#   (.+)$", recipes.shipped()[name].read_text("utf-8"))
    (block,) = blocks_of(section, PAGE)
    assert block.text.splitlines() == header
    run = name.rpartition("/")[2]
    pictures = [REPOSITORY / f"docs/images/gallery-{run}-{theme}.png" for theme in ("light", "dark")]
    if on_cpu(recipes.load(name)) and "No curve was\nmeasured" not in section:
        assert all(f"images/{picture.name}" in section and picture.is_file() for picture in pictures)
    else:
        assert "Needs " in section and not any(picture.exists() for picture in pictures)


def test_benchmarks_and_bases_are_named() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in recipes.shipped() if name not in TRAINED and f"`{name}`" not in text] == []


def test_checkpoints_that_are_shown_are_of_steps_at_which_a_ready_recipe_saves() -> None:
    files = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *recipes.shipped().values()]
    for file in files:
        for name, step in _CHECKPOINT.findall(file.read_text("utf-8")):
            if name in TRAINED:
                trainer = recipes.load(name).trainer
                assert int(step) <= trainer.steps and int(step) % trainer.save_every == 0, f"{file}: {name}"
