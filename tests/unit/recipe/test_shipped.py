"""The recipes that ship are sound."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from aworld_train import recipe
from aworld_train.model.check import file_faults
from aworld_train.recipe.checks import missing_for_training
from aworld_train.recipe.faults import Check
from aworld_train.recipe.locate import commands_for, shipped_file

SHIPPED = recipe.shipped()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_loads_and_says_what_it_is_for(name: str) -> None:
    recipe.load(SHIPPED[name])
    assert SHIPPED[name].read_text(encoding="utf-8").startswith("# ")


@pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")
@pytest.mark.parametrize(
    "name", [name for name in SHIPPED if not (recipe.is_base(name) or recipe.is_benchmark(name))]
)
def test_a_shipped_recipe_can_be_trained_and_composed(name: str, tmp_path: Path) -> None:
    from aworld_train.adapter.verl import schema
    from aworld_train.adapter.verl.compose import compose

    loaded = recipe.load(SHIPPED[name], also=[Check(missing_for_training)])
    composed = compose(loaded, tmp_path)
    schema.check(composed, composed)


def test_shipped_recipes_are_found_by_name() -> None:
    assert {"base/cpu", "quickstart"} <= set(SHIPPED)


def test_an_agent_s_description_is_no_recipe() -> None:
    agents = Path(SHIPPED["quickstart"]).parent / "agents"
    assert list(agents.glob("*.yaml"))
    assert not [name for name in SHIPPED if name.startswith("agents/")]


def test_a_file_of_the_ready_recipes_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(shipped_file("recipes/agents/swarm.yaml")).is_file()
    assert shipped_file("recipes/agents/none.yaml") == "recipes/agents/none.yaml"
    assert shipped_file("agents/swarm.yaml") == "agents/swarm.yaml"


def test_a_started_recipe_names_the_commands_that_make_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe.write_starting_recipe("quickstart", Path("mine.yaml"))
    faults = dict(file_faults(recipe.load("mine.yaml")))
    assert "`aworld-train model tiny --out models/tiny`" in faults["model", "path"]
    for split in ("train", "val"):
        command = "`aworld-train dataset build arithmetic --out data/arithmetic`"
        assert f"build it with {command}" in faults["dataset", split]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_dataset_of_a_ready_recipe_has_its_command(name: str) -> None:
    loaded = recipe.load(SHIPPED[name])
    for file in (*loaded.dataset.train_files, *loaded.dataset.val_files):
        assert commands_for(file, "aworld-train dataset")
    assert commands_for("data/nothing.parquet", "aworld-train dataset") == ""
