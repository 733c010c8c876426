"""A preset is a set of keys below the layer that names it; what is given beside it or over it wins."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.errors import RecipeError
from aworld_train.recipe.presets import PRESETS
from aworld_train.recipe.schema import AlgorithmSection, EqualGroup, Preset, Recipe
from aworld_train.recipe.tree import map_values


def values(recipe: Recipe) -> dict[str, Any]:
    return {".".join(path): value for path, value in map_values(recipes.to_source(recipe))}


@pytest.mark.parametrize("preset", list(Preset))
def test_a_preset_sets_its_keys_and_nothing_else(preset: Preset) -> None:
    shown = values(recipes.load({"algorithm": {"preset": preset.value}}))
    own = {".".join(path): value for path, value in map_values(PRESETS[preset].values)}
    assert shown == values(recipes.load({})) | own | {"algorithm.preset": preset.value}
    assert recipes.load({"algorithm": {"preset": preset.value}}).algorithm.preset is preset


def test_what_is_given_beside_it_wins_wherever_it_stands() -> None:
    beside = recipes.load(
        {"algorithm": {"clip_high": 0.5, "preset": "dapo"}, "rollout": {"equal_group": "keep"}}
    )
    assert (beside.algorithm.clip_high, beside.algorithm.clip_c) == (0.5, 10.0)
    assert beside.rollout.equal_group is EqualGroup.keep
    over = recipes.load({}, ["algorithm.clip_high=0.5", "algorithm.preset=dapo"])
    assert over.algorithm == beside.algorithm


def test_what_is_inherited_gives_way_and_an_earlier_preset_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text("algorithm: {preset: dapo, clip_high: 0.4, kl_coef: 0.01}\n")
    child = tmp_path / "child.yaml"
    child.write_text("extends: parent.yaml\nalgorithm: {preset: gspo}\n")
    gspo = recipes.load(child)
    assert (gspo.algorithm.clip_high, gspo.algorithm.clip_c, gspo.algorithm.kl_coef) == (4e-4, 3.0, 0.01)
    assert gspo.rollout.equal_group is EqualGroup.keep
    child.write_text("extends: parent.yaml\nalgorithm: {preset: null}\n")
    assert recipes.load(child).algorithm == replace(AlgorithmSection(), clip_high=0.4, kl_coef=0.01)
    child.write_text("extends: parent.yaml\ntrainer: {steps: 3}\n")
    assert recipes.load(child).algorithm.clip_high == 0.4


@pytest.mark.parametrize("preset", list(Preset))
def test_a_written_recipe_is_read_again_as_it_is(preset: Preset) -> None:
    recipe = recipes.load({"algorithm": {"preset": preset.value, "clip_high": 0.11}})
    assert recipes.load(recipe) == recipes.load(recipes.to_source(recipe)) == recipe


@pytest.mark.parametrize(
    ("value", "sentence"), [("dappo", "expects one of grpo, dr_grpo"), ("${oc.env:HOME}", "write it out")]
)
def test_a_preset_that_is_not_known_when_layers_are_merged_is_refused(value: str, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        recipes.load({}, [f"algorithm.preset={value}"])


def test_an_object_with_a_preset_that_was_never_applied_is_refused() -> None:
    with pytest.raises(RecipeError, match="no effect in a Recipe object"):
        recipes.load(Recipe(algorithm=AlgorithmSection(preset=Preset.dapo)))
