"""What a recipe takes from the environment reaches VeRL, agents and scorers, and stands in no file of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

from aworld_train import recipe as recipes
from aworld_train.adapter.base import framework_of
from aworld_train.adapter.episodes.files import write_files
from aworld_train.adapter.episodes.record import EpisodeRecord
from aworld_train.adapter.episodes.scoring import _plan
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.cli.recipe import app
from aworld_train.dataset import build
from aworld_train.errors import DatasetError, RecipeError, UsageError
from aworld_train.masking import remember
from aworld_train.recipe.loading import LoadedRecipe
from aworld_train.training import AgentTrainer
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.run_folder import open_run_folder
from aworld_train.training.summary import RunSummary
from tests.canaries import MARK, SECTIONS, found_in, plant

URL = f"http://127.0.0.1:9/{MARK}tools/mcp"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedRecipe:
    """The recipe, with everything there that it names."""
    monkeypatch.chdir(tmp_path)
    build("arithmetic", "data", limit=60, splits={"train": 0.5, "val": 0.5})
    model, agent = tmp_path / "model", tmp_path / "agent.py"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (model / name).write_text("{}")
    (model / "chat_template.jinja").write_text("{}")
    agent.write_text("print(1)")
    planted = plant(tmp_path / "places", model=model, data=tmp_path / "data", agent=agent)
    for name, value in {**planted, "CANARY_TOOLS": URL}.items():
        monkeypatch.setenv(name, value)
    return recipes.read({"name": "t", **SECTIONS, "env": {"url": "${oc.env:CANARY_TOOLS}"}})


def planned(loaded: LoadedRecipe) -> Path:
    """The folder that a dry run writes."""
    processor = AgentTrainer(config=loaded).train_processor
    assert isinstance(processor, FrameworkProcessor)
    plan = processor.plan_in(Path("out"))
    write_files(Path("out"), plan.files)
    assert MARK not in " ".join(plan.command)
    return Path("out").resolve()


def test_no_file_of_a_run_holds_a_value_and_whoever_reads_them_has_it(
    loaded: LoadedRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned(loaded)
    assert len(list(folder.iterdir())) == 4
    assert list(found_in(folder)) == []
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}

    monkeypatch.chdir("/")  # VeRL's processes are elsewhere
    config: Any = OmegaConf.load(folder / "verl.yaml")
    assert Path(config.actor_rollout_ref.model.path).samefile(tmp_path / "model")
    assert Path(config.data.train_files).samefile(tmp_path / "data" / "train.parquet")
    assert config.trainer.project_name == f"{MARK}project"

    agent = read_settings(str(folder / "episodes.yaml")).agent
    assert agent["command"] == [
        "python",
        f"{tmp_path}/places/{MARK}folder/agent.py",
        f"--key={MARK}argument",
    ]
    assert agent["environment"] == {"SEARCH_KEY": f"{MARK}searchkey"}
    settings = _plan(str(folder / "reward.yaml")).settings
    (model,) = settings.judge.models
    assert (model.url, model.model) == (f"http://127.0.0.1:9/{MARK}endpoint", f"{MARK}endpointmodel")
    assert (settings.judge.cache, settings.judge.prompt) == (f"{tmp_path}/places/{MARK}cache", "Judge.")
    assert settings.tools.url == URL


def test_a_recipe_object_that_was_loaded_before_is_written_with_references_too(loaded: LoadedRecipe) -> None:
    processor = AgentTrainer(config=loaded.recipe, agent=loaded.recipe.agent).train_processor
    assert isinstance(processor, FrameworkProcessor)
    files = processor.plan_in(Path("out")).files
    assert MARK not in "".join(files.values())
    assert "${oc.env:CANARY_SEARCH_KEY}" in files["episodes.yaml"]
    assert processor.loaded is not None
    assert MARK not in json.dumps(processor.loaded.unresolved)


@pytest.mark.parametrize("options", [[], ["--json"], ["--verl"], ["--verl", "--json"]])
def test_show_prints_references(loaded: LoadedRecipe, options: list[str]) -> None:
    Path("r.yaml").write_text(recipes.dump(loaded.unresolved))
    shown = CliRunner().invoke(app, ["show", "r.yaml", *options])
    assert shown.exit_code == 0
    assert MARK not in shown.output
    assert "${oc.env:CANARY_MODEL}" in shown.output


def test_errors_about_what_is_not_there_name_the_reference(
    loaded: LoadedRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_DATA", f"/nowhere/{MARK}data")
    with pytest.raises(DatasetError, match=r"\$\{oc\.env:CANARY_DATA\}/train\.parquet") as refused:
        AgentTrainer(config=loaded.unresolved)
    assert MARK not in str(refused.value)


@pytest.mark.parametrize("key", ["verl.ray_kwargs.ray_init.namespace", "verl.trainer.wandb_proxy"])
def test_what_verl_shows_to_others_takes_nothing_from_the_environment(loaded: LoadedRecipe, key: str) -> None:
    recipe = recipes.load(loaded.recipe, [f"{key}=${{oc.env:CANARY_PROJECT}}"])
    with pytest.raises(RecipeError, match=rf"{key} refers to an environment variable") as refused:
        framework_of(recipe)
    assert MARK not in str(refused.value)


def test_verls_own_interpolations_carry_references_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_PROJECT", f"{MARK}project")
    raw = {"trainer": {"project_name": "x-${oc.env:CANARY_PROJECT}", "experiment_name": "${.project_name}/y"}}
    composed = compose(recipes.load({"model": {"path": r"a\${b}"}, "verl": raw}), tmp_path / "a${b}")
    assert composed["trainer"]["experiment_name"] == "x-${oc.env:CANARY_PROJECT}/y"
    config: Any = OmegaConf.create(composed)
    assert config.trainer.experiment_name == f"x-{MARK}project/y"
    assert config.actor_rollout_ref.model.path == "a${b}"
    assert config.trainer.default_local_dir == str(tmp_path / "a${b}" / "checkpoints")


def test_a_resumed_run_notices_another_recipe_and_other_data_behind_the_same_reference(
    loaded: LoadedRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [loaded.recipe.dataset.train or "", loaded.recipe.dataset.val or ""]
    open_run_folder(tmp_path / "run", VerlFramework(), loaded.unresolved, data, resume=False).close()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1}\n')
    open_run_folder(tmp_path / "run", VerlFramework(), loaded.unresolved, data, resume=True).close()
    assert list(found_in(tmp_path / "run")) == []
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert list(manifest["data_sha256"]) == [
        "${oc.env:CANARY_DATA}/train.parquet",
        "${oc.env:CANARY_DATA}/val.parquet",
    ]
    changed = recipes.read(loaded.unresolved, ["model.path=${oc.env:CANARY_DATA}"])
    with pytest.raises(UsageError, match=r"Changed: model\.path\."):
        open_run_folder(tmp_path / "run", VerlFramework(), changed.unresolved, data, resume=True)
    build("arithmetic", "other", limit=80, splits={"train": 0.5, "val": 0.5})
    monkeypatch.setenv("CANARY_DATA", str(tmp_path / "other"))
    again = recipes.read(loaded.unresolved)
    with pytest.raises(UsageError, match=r"its data changed since it began: \$\{oc\.env:CANARY_DATA\}"):
        open_run_folder(
            tmp_path / "run",
            VerlFramework(),
            again.unresolved,
            [*again.recipe.dataset.train_files, *again.recipe.dataset.val_files],
            resume=True,
        )


def test_directories_follow_the_umask_and_records_are_their_owners(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", VerlFramework(), {"name": "r"}, [], resume=False)
    RunSummary("r").write(folder.path)
    folder.close()
    made = tmp_path / "made"
    made.mkdir()
    for path in (folder.path, folder.checkpoints, folder.log.parent, folder.episodes.parent):
        assert path.stat().st_mode == made.stat().st_mode
    for name in ("recipe.yaml", "manifest.json", "summary.json"):
        assert (folder.path / name).stat().st_mode & 0o777 == 0o600


def test_the_line_of_an_episode_holds_no_value_and_is_its_owners(run_dir: Path) -> None:
    remember(f"{MARK}key", "${oc.env:CANARY_KEY}")
    EpisodeRecord(1, False, 0).write(RuntimeError(f"no answer with {MARK}key"))
    file = run_dir / "traces" / "episodes.jsonl"
    assert json.loads(file.read_text())["cause"] == "RuntimeError: no answer with ${oc.env:CANARY_KEY}"
    assert file.stat().st_mode & 0o777 == 0o600
