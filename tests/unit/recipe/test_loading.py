"""Inheritance, overrides and interpolation: which value wins, and where values come from."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from aworld_train import recipe
from aworld_train.errors import RecipeError
from aworld_train.recipe import Recipe
from aworld_train.recipe.schema import Egress, Engine


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def test_an_almost_empty_recipe_has_every_default() -> None:
    assert recipe.load(write("a.yaml", "name: a\n")) == Recipe(name="a")


def test_values_have_the_types_of_the_schema() -> None:
    loaded = recipe.load({"rollout": {"engine": "vllm"}, "trainer": {"lr": 1}, "verl": {"a": {"b": [1]}}})
    assert loaded.rollout.engine is Engine.vllm
    assert isinstance(loaded.trainer.lr, float)
    assert type(loaded.raw) is dict and loaded.raw == {"a": {"b": [1]}}


def test_exponents_without_a_point_are_numbers() -> None:
    assert recipe.load(write("a.yaml", "trainer: {lr: 1e-6}\n")).trainer.lr == 1e-6


def test_octal_like_and_clock_like_text_stays_text() -> None:
    loaded = recipe.load(write("a.yaml", "verl: {a: 010, b: 1:30, c: 2026-11-20}\n"))
    assert loaded.raw == {"a": "010", "b": "1:30", "c": "2026-11-20"}


def test_a_child_overrides_its_ancestors_key_by_key() -> None:
    write("base/root.yaml", "trainer: {steps: 1, batch_size: 32, seed: 1}\nenv: {servers: [a, b, c]}\n")
    write("base/mid.yaml", "extends: root.yaml\ntrainer: {steps: 2, seed: 2}\n")
    loaded = recipe.load(
        write("a.yaml", "extends: base/mid.yaml\ntrainer: {steps: 3}\nenv: {servers: [d]}\n")
    )
    assert (loaded.trainer.steps, loaded.trainer.seed, loaded.trainer.batch_size) == (3, 2, 32)
    assert loaded.env.servers == ["d"]
    assert loaded.extends is None


def test_extends_is_relative_to_the_file_that_says_it() -> None:
    write("deep/er/base.yaml", "name: right\n")
    write("base.yaml", "name: wrong\n")
    write("deep/er/a.yaml", "extends: base.yaml\n")
    assert recipe.load("deep/er/a.yaml").name == "right"


def test_ready_recipes_are_found_by_name_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Path("elsewhere").resolve()
    write("elsewhere/base/tiny.yaml", "name: ready\n")
    monkeypatch.setattr("aworld_train.recipe.locate.shipped_folder", lambda: ready)
    write("a.yaml", "extends: base/tiny.yaml\n")
    assert recipe.load("a.yaml").name == "ready"
    assert recipe.load("base/tiny").name == recipe.load("recipes/base/tiny.yaml").name == "ready"
    assert list(recipe.shipped()) == ["base/tiny"]


def test_a_circle_of_extends_names_the_chain() -> None:
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "extends: sub/c.yaml\n")
    write("sub/c.yaml", "extends: ../a.yaml\n")
    with pytest.raises(RecipeError) as caught:
        recipe.load("a.yaml")
    assert "sub/c.yaml:1: recipes extend each other in a circle: " in str(caught.value)
    assert "a.yaml -> b.yaml -> sub/c.yaml -> a.yaml" in str(caught.value)


def test_a_recipe_that_extends_itself_is_a_circle() -> None:
    with pytest.raises(RecipeError, match=r"a\.yaml -> a\.yaml"):
        recipe.load(write("a.yaml", "extends: a.yaml\n"))


def test_overrides_win_in_order_and_are_yaml() -> None:
    loaded = recipe.load(
        {"trainer": {"minibatch_size": 4}},
        [
            "trainer.steps=3",
            "trainer.steps=4",
            "env.servers=[a,b]",
            "trainer.minibatch_size=null",
            "rollout={temperature: 0.5}",
            "verl.actor_rollout_ref.actor.ppo_epochs=2",
            "reward.function=mine.py:score",
            "agent.system_prompt=You are: helpful",
        ],
    )
    assert loaded.trainer.steps == 4
    assert loaded.env.servers == ["a", "b"]
    assert loaded.trainer.minibatch_size is None
    assert loaded.rollout.temperature == 0.5
    assert loaded.raw == {"actor_rollout_ref": {"actor": {"ppo_epochs": 2}}}
    assert loaded.reward.function == "mine.py:score"
    assert loaded.agent.system_prompt == "You are: helpful"


def test_an_override_of_a_text_key_is_text_without_quotes() -> None:
    assert recipe.load({}, ["name=2024"]).name == "2024"
    assert recipe.load({}, ["agent.system_prompt=''"]).agent.system_prompt == ""
    assert recipe.load({}, ["agent.system_prompt=null"]).agent.system_prompt is None


def test_interpolations_read_the_environment_and_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_DIR", "/models")
    monkeypatch.setenv("STEPS", "12")
    monkeypatch.delenv("ABSENT", raising=False)
    loaded = recipe.load(
        {
            "name": "run-${trainer.steps}",
            "model": {"path": "${oc.env:MODEL_DIR}/tiny"},
            "trainer": {"steps": "${oc.env:STEPS}", "val_every": "${.steps}", "seed": "${oc.env:ABSENT,7}"},
            "rollout": {"engine": "${oc.env:ABSENT,vllm}"},
            "dataset": {"val": "${oc.env:ABSENT,null}"},
        }
    )
    assert loaded.name == "run-12"
    assert loaded.model.path == "/models/tiny"
    assert (loaded.trainer.steps, loaded.trainer.val_every, loaded.trainer.seed) == (12, 12, 7)
    assert loaded.rollout.engine is Engine.vllm
    assert loaded.dataset.val is None


def test_interpolations_may_name_defaults_that_no_file_sets() -> None:
    assert recipe.load({"trainer": {"steps": "${rollout.n}"}}).trainer.steps == Recipe().rollout.n


def test_interpolations_below_verl_are_left_for_verl() -> None:
    raw = {"data": {"max_response_length": "${data.max_prompt_length}"}}
    assert recipe.load({"verl": raw}).raw == raw


def test_relative_paths_are_left_as_written() -> None:
    write("sub/a.yaml", "model: {path: models/tiny}\ndataset: {train: data/train.parquet}\n")
    loaded = recipe.load("sub/a.yaml")
    assert (loaded.model.path, loaded.dataset.train) == ("models/tiny", "data/train.parquet")


def test_mappings_omegaconf_nodes_and_recipes_are_sources() -> None:
    tree = {"name": "x", "trainer": {"steps": "${rollout.n}"}, "rollout": {"engine": Engine.vllm}}
    expected = recipe.load(tree)
    assert recipe.load(OmegaConf.create(tree)) == expected
    assert recipe.load(expected) == expected
    assert recipe.load(expected, ["name=y"]).name == "y"
    assert recipe.load({"model": {"path": Path("models/tiny")}}).model.path == "models/tiny"


def test_loading_leaves_its_source_alone() -> None:
    tree = {"name": "x", "verl": {"a": {"b": 1}}}
    loaded = recipe.load(tree, ["verl.a.c=2"])
    loaded.raw["a"]["b"] = 3
    assert tree == {"name": "x", "verl": {"a": {"b": 1}}}


def test_the_unresolved_form_keeps_interpolations_and_loads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER", "http://secret-host/mcp")
    write("base.yaml", "trainer: {steps: 5}\n")
    write("a.yaml", "extends: base.yaml\nenv: {url: '${oc.env:SERVER}'}\n")
    loaded = recipe.read("a.yaml", ["trainer.seed=1"])
    stored = recipe.dump(loaded.unresolved)
    assert "secret-host" not in stored
    assert "extends" not in loaded.unresolved
    assert loaded.path is not None and loaded.path.name == "a.yaml"
    assert recipe.load(write("stored/recipe.yaml", stored)) == loaded.recipe


def test_a_choice_that_may_be_left_out_is_read_as_the_choice_it_is() -> None:
    assert recipe.load({"env": {"egress": "none"}}).env.egress is Egress.none
    assert recipe.load({"env": {"egress": None}}).env.egress is None
