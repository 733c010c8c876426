"""``aworld-train recipe``: what is printed where, in text and as JSON."""

import json
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from aworld_train import recipe
from aworld_train.cli.recipe import app
from aworld_train.dataset import build
from aworld_train.errors import AworldTrainError, DependencyMissing, ModelError, RecipeError, UsageError
from tests.hub import hub
from tests.models import shipped_tokenizer
from tests.unit.doctor.world import QWEN3_8B

needs_verl = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")
TRAINABLE = """\
# A small recipe for tests.
name: small
model: {path: org/tiny}
dataset: {train: train.parquet, val: val.parquet}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("arithmetic", tmp_path_factory.mktemp("data") / "built", limit=40, seed=1).out


@pytest.fixture(autouse=True)
def recipe_file(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(TRAINABLE)
    for name in ("train.parquet", "val.parquet"):
        Path(name).symlink_to(data / name)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_show_prints_a_recipe_that_loads_as_itself() -> None:
    shown = run("show", "small.yaml", "trainer.steps=3")
    assert shown.exit_code == 0
    assert recipe.load(yaml.safe_load(shown.stdout)) == recipe.load("small.yaml", ["trainer.steps=3"])


def test_show_as_json_prints_one_object() -> None:
    assert json.loads(run("show", "small.yaml", "--json").stdout)["name"] == "small"


@needs_verl
def test_show_verl_prints_the_composed_configuration() -> None:
    composed = json.loads(run("show", "small.yaml", "--verl", "--json").stdout)
    assert composed["actor_rollout_ref"]["model"]["path"] == "org/tiny"


@needs_verl
def test_a_secret_among_verls_keys_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2")
    key = "verl.ray_kwargs.ray_init.runtime_env.env_vars.SOME_API_KEY"
    refused = run("show", "small.yaml", f"{key}=${{oc.env:SOME_API_KEY}}", "--verl", "--json")
    assert isinstance(refused.exception, RecipeError)
    assert f"{key} looks like a secret" in str(refused.exception)
    assert "hunter2" not in str(refused.exception) + refused.output


@needs_verl
def test_check_says_how_turns_of_a_model_are_read_and_continued() -> None:
    shipped_tokenizer().save_pretrained("org/tiny")
    Path("org/tiny/config.json").write_text("{}")
    Path("org/tiny/model.safetensors").touch()
    checked = json.loads(run("check", "small.yaml", "--json").stdout)
    assert checked["remarks"] == [
        "Tool calls are read as hermes (by the chat template).",
        "The chat template continues each turn: an episode is one training row.",
    ]
    refused = run("check", "small.yaml", "agent.tool_parser=glm")
    assert isinstance(refused.exception, ModelError)
    assert "glm does not fit the model" in str(refused.exception)


@needs_verl
def test_check_passes_a_sound_recipe() -> None:
    assert run("check", "small.yaml").stdout == "small.yaml: fine\n"
    checked = json.loads(run("check", "small.yaml", "--json").stdout)
    assert checked == {
        "name": "small",
        "digest": recipe.digest(recipe.load("small.yaml")),
        "verl_checked": True,
        "remarks": [],
    }


@needs_verl
def test_check_says_memory_and_disk_of_a_model_of_the_hub_by_its_configuration_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub({"config.json": json.dumps(QWEN3_8B).encode()}, read) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        gpus = ("rollout.engine=vllm", "cluster.device=cuda", "trainer.steps=100")
        assert not read and json.loads(run("check", "small.yaml", *gpus, "--json").stdout)["remarks"] == []
        memory, disk = json.loads(run("check", "small.yaml", *gpus, "--online", "--json").stdout)["remarks"]
    assert memory.startswith("Each GPU holds 1") and set(read) == {"config.json"}
    assert disk.startswith("The run takes up to 5") and "4 checkpoints of 131.0 GB" in disk


BERT = '{"architectures": ["BertForMaskedLM"]}'
T5 = '{"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true}'


@needs_verl
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.train=rows.csv", "rows.csv is not a parquet file"),
        ("dataset.train=small.yaml", "small.yaml is not a parquet file"),
        ("env.docker_dir=calculator-mcp-sever", "Did you mean 'calculator-mcp-server'"),
        ("trainer.batch_size=37", "has 36 tasks, fewer than one step takes"),
        ("trainer.steps=100000000000000000000", "`trainer.steps` must be at most 1,000,000,000"),
        ("model.path=bert", "is a BertForMaskedLM, which does not write text"),
        ("model.path=t5", "is a T5ForConditionalGeneration, which does not write text"),
    ],
)
def test_check_refuses_what_a_run_cannot_use(override: str, message: str) -> None:
    Path("rows.csv").write_text("query,answer\n1+1,2\n")
    for name, config in {"bert": BERT, "t5": T5}.items():
        Path(name).mkdir()
        Path(name, "config.json").write_text(config)
    refused = run("check", "small.yaml", override)
    assert isinstance(refused.exception, AworldTrainError) and refused.exception.exit_code == 2
    assert message in refused.exception.message


def test_a_recipe_for_eval_alone_needs_no_training_tasks_and_no_model() -> None:
    Path("eval.yaml").write_text("name: measured\ndataset: {val: val.parquet}\n")
    assert run("check", "eval.yaml", "--for", "eval").stdout == "eval.yaml: fine\n"
    refused = run("check", "eval.yaml")
    assert isinstance(refused.exception, RecipeError)
    assert "`dataset.train` is not set" in refused.exception.message
    assert "--for eval" in refused.exception.message
    assert "no such file" in str(run("check", "eval.yaml", "dataset.val=no", "--for", "eval").exception)


@needs_verl
def test_check_refuses_a_key_that_verl_does_not_have() -> None:
    refused = run("check", "small.yaml", "verl.trainer.total_epoch=3")
    assert isinstance(refused.exception, RecipeError)
    assert "did you mean `trainer.total_epochs`?" in str(refused.exception)


@needs_verl
def test_check_names_a_missing_model_and_missing_datasets_at_once() -> None:
    Path("models").mkdir()
    missing = ["small.yaml", "model.path=models/none", "dataset.train=a.parquet", "dataset.val=b.parquet"]
    refused = run("check", *missing)
    assert isinstance(refused.exception, RecipeError)
    message = str(refused.exception)
    assert message.startswith("3 problems:\n")
    for part in (
        "No such model directory: models/none",
        "`dataset.train`: no such file: a.parquet",
        "b.parquet",
    ):
        assert part in message
    assert run("check", *missing, "--no-files").stdout == "small.yaml: fine\n"


@needs_verl
def test_check_names_all_keys_and_names_that_a_run_cannot_use() -> None:
    wrong = ["algorithm.name=grop", "verl.trainer.logger=console", "verl.trainer.save_freq=-1"]
    message = str(run("check", "small.yaml", *wrong).exception)
    assert message.startswith("3 problems:\n")
    for part in ("Did you mean 'grpo'", "`trainer.loggers`", "`trainer.save_every`"):
        assert part in message


def test_check_refuses_a_recipe_that_cannot_be_trained() -> None:
    refused = run("check", "small.yaml", "dataset.train=null")
    assert isinstance(refused.exception, RecipeError)
    assert str(refused.exception).startswith(
        "override dataset.train=null: `dataset.train` is not set: a Parquet file"
    )


def test_check_says_so_when_verl_is_not_there_to_check_against(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise DependencyMissing("verl is not installed")

    monkeypatch.setattr("aworld_train.training.recipe_checks.recipe_faults", missing)
    monkeypatch.setattr("aworld_train.cli.recipe._composed", missing)
    checked = run("check", "small.yaml", "--json")
    assert json.loads(checked.stdout)["verl_checked"] is False
    assert "verl's keys were not checked: verl is not installed" in checked.stderr


def test_check_remarks_on_a_tool_timeout_below_the_limits_of_the_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.cli.recipe._composed", lambda loaded: {"data": {}})
    early = ["small.yaml", "agent.tool_timeout=60", "env.docker_dir=gaia-mcp-server", "env.url=null"]
    checked = run("check", *early)
    assert checked.exit_code == 0 and checked.stdout == "small.yaml: fine\n"
    assert (
        "calls end before the tool servers' own limits, which are 660 s (terminal-server)" in checked.stderr
    )
    (remark,) = json.loads(run("check", *early, "--json").stdout)["remarks"]
    assert remark.startswith("agent.tool_timeout is 60:")


def test_check_of_a_recipe_for_gpus_says_how_long_episodes_wait_for_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.cli.recipe._composed", lambda loaded: {"data": {}})
    checked = run("check", "gaia/qwen3-8b-8gpu", "--no-files", "env.workers=2")
    assert checked.exit_code == 0 and "128 episodes at a time share 2 tool workers" in checked.stderr


def test_list_names_the_ready_recipes_and_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.recipe.locate.shipped_folder", Path.cwd)
    Path("base").mkdir()
    Path("base/cpu.yaml").write_text("name: cpu\n")
    assert run("list").stdout == (
        "Without a GPU:\n  small     A small recipe for tests.\n\nBases, to extend:\n  base/cpu\n"
    )
    rows = json.loads(run("list", "--json").stdout)["recipes"]
    assert [(row["name"], row["purpose"]) for row in rows] == [
        ("base/cpu", ""),
        ("small", "A small recipe for tests."),
    ]


def test_list_fits_into_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    for module in ("recipe", "console"):
        console = Console(file=screen, force_terminal=True, width=80, highlight=False)
        monkeypatch.setattr(f"aworld_train.cli.{module}.out", console)
    assert run("list").exit_code == 0
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith(" " * 20)]


def test_schema_is_one_json_object() -> None:
    assert json.loads(run("schema").stdout) == recipe.json_schema()


def test_list_has_recipes_by_what_they_run_on_and_bases_apart() -> None:
    listed = run("list").stdout
    titles = [line for line in listed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Without a GPU:",
        "One GPU:",
        "Several GPUs:",
        "Several machines:",
        "Benchmarks, to evaluate with:",
        "Bases, to extend:",
    ]
    kinds = {row["name"]: row["kind"] for row in json.loads(run("list", "--json").stdout)["recipes"]}
    assert kinds["quickstart"] == "cpu" and kinds["gsm8k-qwen2.5-1.5b-1gpu"] == "gpu"
    assert kinds["gaia/qwen3-8b-8gpu"] == "gpus" and kinds["gaia/qwen3-32b-multinode"] == "multinode"
    assert {name for name, kind in kinds.items() if kind == "base"} == {
        "base/cpu",
        "base/files-cpu",
        "base/gpu-1",
        "base/gpu-8",
        "base/judged",
        "base/multinode",
        "base/web",
    }
    assert kinds["benchmarks/gaia"] == "benchmark"


def test_show_diff_compares_with_the_parent_and_with_the_defaults() -> None:
    Path("child.yaml").write_text("# A child.\nname: child\nextends: small.yaml\ntrainer: {steps: 3}\n")
    shown = json.loads(run("show", "child.yaml", "rollout.n=4", "--diff", "--json").stdout)
    (parent, defaults) = shown["differences"]
    assert parent == {
        "from": "small.yaml",
        "keys": {
            "name": {"from": "small", "to": "child"},
            "rollout.n": {"from": 8, "to": 4},
            "trainer.steps": {"from": 10, "to": 3},
        },
    }
    assert defaults["from"] == "the defaults"
    assert defaults["keys"]["model.path"] == {"from": None, "to": "org/tiny"}
    assert "  trainer.steps: 3  (there 10)\n" in run("show", "child.yaml", "--diff").stdout


def test_init_writes_a_recipe_that_loads_as_the_one_it_starts_from() -> None:
    made = json.loads(run("init", "mine", "--from", "gsm8k-qwen2.5-1.5b-1gpu", "--json").stdout)
    assert made == {"path": "mine.yaml", "name": "mine", "extends": "gsm8k-qwen2.5-1.5b-1gpu"}
    started = recipe.read("mine.yaml").unresolved
    ready = recipe.read("gsm8k-qwen2.5-1.5b-1gpu").unresolved
    assert list(recipe.changes(ready, started)) == ["name"]
    assert "# Tasks per step." in Path("mine.yaml").read_text()
    head, _, schema = Path("mine.yaml").read_text().splitlines()[0].partition("=")
    assert head == "# yaml-language-server: $schema"
    assert json.loads(Path(schema).read_text()) == recipe.json_schema()


def test_init_refuses_a_file_whose_name_no_run_can_have() -> None:
    refused = run("init", "my run.yaml")
    assert isinstance(refused.exception, RecipeError) and "`name` must be letters" in str(refused.exception)
    assert not Path("my run.yaml").exists()


def test_init_replaces_no_file() -> None:
    refused = run("init", "small.yaml")
    assert isinstance(refused.exception, UsageError) and "exists already" in str(refused.exception)
    assert Path("small.yaml").read_text() == TRAINABLE


def test_init_from_a_recipe_that_is_not_there_writes_nothing() -> None:
    refused = run("init", "mine.yaml", "--from", "quickstrat")
    assert isinstance(refused.exception, RecipeError) and "Did you mean 'quickstart'?" in str(
        refused.exception
    )
    assert not Path("mine.yaml").exists()
