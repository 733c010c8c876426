"""The seam to training frameworks: one protocol, and nothing beside it that knows a framework."""

import re
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter import base
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import RecipeError
from aworld_train.recipe.output import to_dict
from tests.locations import REPOSITORY
from tests.second_framework import Counting

PACKAGE = REPOSITORY / "aworld_train"


def test_no_module_outside_the_adapter_names_a_framework_s_folder() -> None:
    modules = [file for file in PACKAGE.rglob("*.py") if not file.is_relative_to(PACKAGE / "adapter")]
    assert len(modules) > 200
    named = re.compile(r"adapter[./]verl|import verl\b|from verl\b")
    assert [str(file) for file in modules if named.search(file.read_text("utf-8"))] == []


def test_what_episodes_share_names_no_framework() -> None:
    folder = PACKAGE / "adapter" / "episodes"
    for file in (PACKAGE / "adapter" / "base.py", *folder.glob("*.py")):
        assert "verl" not in file.read_text("utf-8").lower(), file


def test_the_framework_of_a_recipe_is_found_by_its_name() -> None:
    assert isinstance(base.framework_of(recipes.load({})), VerlFramework)
    assert "verl" in base.framework_names()


def test_a_framework_can_be_registered_in_a_process_and_forgotten() -> None:
    base.register("counting", Counting)
    try:
        recipe = recipes.load({"trainer": {"framework": "counting"}, "counting": {"a": 1}})
        assert isinstance(base.framework_of(recipe), Counting)
        assert recipe.raw == {"a": 1}
    finally:
        base.unregister("counting")
    with pytest.raises(RecipeError, match=r"Unknown training framework 'counting' .*. There are verl\."):
        base.find("counting")


@pytest.mark.parametrize("key", ["steps: 3", "steps: {a: 1}"])
def test_a_key_that_the_framework_owns_cannot_be_set(key: str, tmp_path: Path) -> None:
    base.register("counting", Counting)
    file = tmp_path / "recipe.yaml"
    file.write_text(f"trainer: {{framework: counting}}\ncounting: {{{key}}}\n")
    try:
        with pytest.raises(
            RecipeError, match=r"counting\.steps.* cannot be set: trainer\.steps says how many"
        ):
            base.framework_of(recipes.load(file))
    finally:
        base.unregister("counting")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"trainer": {"framework": "other"}, "verl": {"a": 1}},
            "the section `verl` has no effect: `trainer.framework` is",
        ),
        ({"raw": {"a": 1}}, "unknown key `raw`; did you mean `verl`?"),
        ({"verl": 3}, "`verl` expects a map, got 3"),
        ({"trainer": {"framework": "model"}}, "no other section has that name; it is 'model'"),
        ({"trainer": {"framework": "${oc.env:HOME}"}}, "is written out"),
        ({"trainer": {"framework": 3}}, "`trainer.framework` expects text, got 3"),
    ],
)
def test_a_section_that_is_not_the_framework_s_is_refused(recipe: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as raised:
        recipes.load(recipe)
    assert message in raised.value.message


def test_a_recipe_of_another_framework_reads_back_as_the_same() -> None:
    recipe = recipes.load({"trainer": {"framework": "other"}, "other": {"a": ["${b}", 1e-6]}})
    assert recipes.load(recipe) == recipe
    assert to_dict(recipe)["other"] == {"a": ["${b}", 1e-6]}
    assert "verl" not in to_dict(recipe)
