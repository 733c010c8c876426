"""Every recipe with mistakes is refused with all of them, each with its place, and nothing heavy is imported for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train import recipe
from aworld_train.errors import RecipeError
from aworld_train.recipe.locate import shipped_folder
from aworld_train.training.recipe_checks import recipe_checks
from tests import wrong_recipes
from tests.locations import REPOSITORY
from tests.wrong_recipes import FILES, WrongRecipe, agree, make_workplace, problems_in

pytest.importorskip("verl", reason="needs the extra cpu or gpu")

HEAVY = {"torch", "ray", "verl", "transformers", "vllm"}
SCRIPT = """
import sys
from aworld_train.cli.main import app
try:
    app(["recipe", "check", *sys.argv[1:]])
finally:
    print(sorted(sys.modules.keys() & {HEAVY}), file=sys.stdout)
""".replace("{HEAVY}", repr(HEAVY))


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_workplace(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 80


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_wrong_recipe_is_refused_with_all_of_its_problems(file: Path) -> None:
    wrong = wrong_recipes.read(file)
    assert wrong.problems
    Path(file.name).write_text(wrong.text)
    with pytest.raises(RecipeError) as caught:
        recipe.load(file.name, wrong.overrides, also=recipe_checks())
    folder = shipped_folder()
    assert folder is not None
    problems = problems_in(str(caught.value), file.name, folder)
    assert agree(wrong.problems, problems), problems


@pytest.mark.parametrize("name", ["key-three-mistakes", "name-policy-loss", "size-batch-by-microbatch"])
def test_nothing_heavy_is_imported_to_refuse_one(name: str) -> None:
    wrong: WrongRecipe = wrong_recipes.read(wrong_recipes.FOLDER / f"{name}.yaml")
    Path("wrong.yaml").write_text(wrong.text)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "wrong.yaml", *wrong.overrides],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and wrong.problems[0].removesuffix("...") in done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
