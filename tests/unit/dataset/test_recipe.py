"""The recipe of a dataset: every key has an effect, and an error names its line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aworld_train.cli.dataset import app
from aworld_train.dataset.recipe import read_recipe
from aworld_train.errors import RecipeError, UsageError
from aworld_train.recipe.locate import shipped, shipped_folder
from tests.locations import GSM8K_ODD

MIX = f"""
sources:
  - source: gsm8k
    file: {GSM8K_ODD}
    tasks: questions
    scorer: gaia
    system_prompt: SYSTEM
    weight: 1
  - source: arithmetic
    weight: 2
splits: {{train: 0.5, val: 0.5}}
seed: 3
"""


def write(folder: Path, text: str) -> str:
    (folder / "system.txt").write_text("Use your tools.\n")
    path = folder / "mix.yaml"
    path.write_text(text.replace("SYSTEM", str(folder / "system.txt")))
    return str(path)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_recipe_says_all_that_options_say(tmp_path: Path) -> None:
    plan = read_recipe(write(tmp_path, MIX))
    gsm8k, arithmetic = plan.sources
    assert (gsm8k.name, gsm8k.options.files, gsm8k.weight) == ("gsm8k", (str(GSM8K_ODD),), 1)
    assert (gsm8k.options.tasks, gsm8k.options.scorer) == ("questions", "gaia")
    assert gsm8k.options.system == "Use your tools."
    assert (arithmetic.name, arithmetic.weight) == ("arithmetic", 2)
    assert (plan.splits, plan.seed, plan.out) == ({"train": 0.5, "val": 0.5}, 3, Path("data/mix"))


def test_a_recipe_is_built_and_options_go_before_it(tmp_path: Path) -> None:
    recipe = write(tmp_path, MIX)
    first = json.loads(run("build", recipe, "--out", tmp_path / "a", "--json"))
    assert (first["seed"], set(first["rows"])) == (3, {"train", "val"})
    assert first["sources"][0]["options"] == {
        "scorer": "gaia",
        "system": "Use your tools.",
        "tasks": "questions",
    }
    other = json.loads(
        run(
            "build",
            recipe,
            "--out",
            tmp_path / "b",
            "--seed",
            "4",
            "--limit",
            "6",
            "--split",
            "all=1",
            "--json",
        )
    )
    assert (other["seed"], other["limit"], other["rows"]) == (4, 6, {"all": 6})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sources:\n  - source: arithmetic\nlimits: 3\n",
            r"mix\.yaml:3: unknown key `limits`. Did you mean 'limit'",
        ),
        (
            "sources:\n  - source: gsm8k\n    flie: a\n",
            r"mix\.yaml:3: unknown key `sources\.0\.flie`.*'file'",
        ),
        ("sources:\n  - source: arithmetic\nlimit: many\n", r"mix\.yaml:3: `limit`"),
        ("sources:\n  - source: arithmetic\nsplits: {all: most}\n", r"mix\.yaml:3: `splits\.all`"),
        ("sources:\n  - source: arithmetic\n    weight: much\n", r"mix\.yaml:3: `sources\.0\.weight`.*Float"),
        ("sources:\n  - file: a\n", "entry 1 of `sources` has no key `source`"),
        ("sources: gsm8k\n", r"mix\.yaml:1: `sources` is a list"),
        (
            "sources:\n  - source: arithmetic\n    system_prompt: none.txt\n",
            r"mix\.yaml:3: .*none\.txt cannot be read",
        ),
    ],
)
def test_what_is_wrong_in_a_recipe_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(tmp_path, text))


def test_a_recipe_without_a_source_builds_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No source is given"):
        run("build", write(tmp_path, "seed: 1\n"), "--out", tmp_path / "out")


def test_options_of_one_source_are_refused_beside_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"leave out --file, --scorer"):
        run("build", write(tmp_path, MIX), "--file", GSM8K_ODD, "--scorer", "math")


def test_shipped_recipes_of_datasets_can_be_read_and_are_none_for_training() -> None:
    folder = shipped_folder()
    assert folder is not None
    recipes = sorted((folder / "datasets").glob("*.yaml"))
    assert recipes
    for recipe in recipes:
        read_recipe(str(recipe)).check()
        assert f"datasets/{recipe.stem}" not in shipped()


def test_a_recipe_that_is_not_there_is_said_with_those_of_datasets() -> None:
    with pytest.raises(RecipeError, match=r"Did you mean 'recipes/datasets/mix\.yaml'") as caught:
        read_recipe("recipes/datasets/mixx.yaml")
    assert "quickstart" not in caught.value.message
