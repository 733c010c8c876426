"""``aworld-train runs checkpoint``: what is said of checkpoints, what is exported, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from aworld_train import module_process
from aworld_train.cli.runs import app
from aworld_train.errors import AworldTrainError, DiskFull, ExportError, ModelError, UsageError
from aworld_train.model.load_proof import prove
from aworld_train.model.tiny import SHIPPED
from tests import warm
from tests.evaluations import make_evaluation
from tests.hub import REPOSITORY, hub_for_pushing
from tests.run_folders import make_run
from tests.unit.adapter.verl.test_checkpoints import checkpoint, cut

TOKEN = "hf_thesecretofthetest"


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two steps with checkpoints after 0 and 2, which were validated, and 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "runs").mkdir()
    folder = make_run(tmp_path / "runs", "one")
    for step in (0, 1, 2):
        model = checkpoint(folder / "checkpoints", step) / "actor/huggingface"
        shutil.copytree(SHIPPED, model, dirs_exist_ok=True)
    return folder


@pytest.fixture
def warm_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loads a model is a fork of an interpreter that has imported what it needs."""
    executable = warm.stand_in(warm.LIBRARIES)
    monkeypatch.setattr(module_process, "sys", SimpleNamespace(executable=executable))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["checkpoint", *arguments])


def error_of(*arguments: str) -> AworldTrainError:
    error = run(*arguments).exception
    assert isinstance(error, AworldTrainError), error
    assert "\n" not in error.message
    return error


def model_of(folder: Path, step: int = 2) -> Path:
    return folder / f"checkpoints/global_step_{step}/actor/huggingface"


def test_a_checkpoint_is_described(run_folder: Path) -> None:
    facts = json.loads(run("one", "--json").stdout)
    size = facts.pop("bytes")
    assert size > (SHIPPED / "model.safetensors").stat().st_size
    assert facts == {
        "run": "one",
        "step": 2,
        "path": str(run_folder / "checkpoints/global_step_2"),
        "fault": None,
        "model": str(model_of(run_folder)),
        "dtype": "float32",
        "parameters": 344448,
        "accuracy": 0.75,
        "steps": [0, 1, 2],
    }
    cut(run_folder / "checkpoints/global_step_1/data.pt")
    text = run("one", "--step", "1").stdout
    assert "data.pt is cut off" in text and "dtype" not in text
    assert "75.0%" in run("one").stdout


@pytest.mark.parametrize(
    ("step", "cut_off", "expected"),
    [("last", [], 2), ("last", [2], 1), ("best", [], 2), ("best", [2], 0), ("1", [2], 1), ("2", [2], 2)],
)
def test_the_last_and_the_best_are_whole(
    step: str, cut_off: list[int], expected: int, run_folder: Path
) -> None:
    for broken in cut_off:
        cut(run_folder / f"checkpoints/global_step_{broken}/data.pt")
    assert json.loads(run("one", "--step", step, "--json").stdout)["step"] == expected


@pytest.mark.usefixtures("warm_proof")
def test_a_model_is_exported_whole_and_was_loaded(run_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "model"
    done = run("one", "--to", str(target), "--dtype", "bfloat16", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["folder"], said["step"], said["dtype"], said["parameters"]) == (
        str(target),
        2,
        "bfloat16",
        344448,
    )
    assert said["bytes"] == sum(file.stat().st_size for file in target.iterdir())
    assert said["proof"]["class"] == "LlamaForCausalLM"
    # By rounding to eight bits alone, which heads that look sharply back feel; the weights are checked by the command.
    assert 0 < said["proof"]["max_difference"] < 0.1 * said["proof"]["max_logit"]
    shipped = {file.name for file in SHIPPED.iterdir()}
    assert {file.name for file in target.iterdir()} == {*shipped, "README.md"}
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (target / name).read_bytes() == (SHIPPED / name).read_bytes()
    config = json.loads((target / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["model"]


@pytest.mark.usefixtures("warm_proof")
def test_a_model_that_does_not_load_is_not_exported(run_folder: Path, tmp_path: Path) -> None:
    weights = model_of(run_folder) / "model.safetensors"
    state = load_file(weights)
    del state["model.norm.weight"]
    save_file(state, weights, {"format": "pt"})
    error = error_of("one", "--to", "out")
    assert isinstance(error, ExportError) and "does not load" in error.message
    assert "missing_keys" in error.message and "model.norm.weight" in error.message
    assert not [path for path in tmp_path.iterdir() if path.name != "runs"]
    done = run("one", "--to", "out", "--no-proof")
    assert done.exit_code == 0 and "It loads" not in done.stderr and Path("out/model.safetensors").is_file()


def test_the_proof_tells_other_weights_from_rounded_ones(tmp_path: Path) -> None:
    other = shutil.copytree(SHIPPED, tmp_path / "other")
    state = load_file(other / "model.safetensors")
    state["model.layers.1.mlp.up_proj.weight"][0, 0] += 0.5
    save_file(state, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="its logits differ by"):
        prove(str(other), str(SHIPPED), trust_remote_code=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two"], "Unknown run 'two'"),
        (["onr"], "Did you mean 'one'?"),
        (
            ["one", "--step", "7"],
            "has no checkpoint of step 7; there are those of 0, 1, 2, and `last` and `best`",
        ),
        (["one", "--to", "runs"], "--to runs is not an empty folder"),
        (["one", "--to", "runs/one/recipe.yaml"], "recipe.yaml is not an empty folder"),
        (["one", "--to", "out", "--adapter"], "trained all weights: it has no adapter"),
        (["one", "--hub", "a/b"], "needs a token that may write to a/b, in the variable HF_TOKEN"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    error = error_of(*arguments)
    assert isinstance(error, UsageError) and message in error.message
    assert not Path("out").exists()


def test_runs_without_a_usable_checkpoint_say_why(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (0, 1, 2):
        cut(run_folder / f"checkpoints/global_step_{step}/data.pt")
    assert "has no whole checkpoint: of step 2, data.pt is cut off" in error_of("one").message
    error = error_of("one", "--step", "2", "--to", "out")
    assert isinstance(error, ModelError) and "is not whole: data.pt is cut off" in error.message
    (run_folder / "metrics.jsonl").unlink()
    shutil.rmtree(run_folder / "checkpoints")
    assert "has no checkpoint yet" in error_of("one").message
    shutil.copytree(SHIPPED, model_of(run_folder), dirs_exist_ok=True)
    (checkpoint(run_folder / "checkpoints", 2) / "actor/huggingface/model.safetensors").unlink()
    assert "was validated, so that none is the best" in error_of("one", "--step", "best").message
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "--hub a//b is not the name of a repository" in error_of("one", "--hub", "a//b").message


def test_a_full_disk_leaves_nothing(run_folder: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        for dtype in ([], ["--dtype", "float16"]):
            error = error_of("one", "--to", str(disk / "model"), *dtype)
            assert isinstance(error, DiskFull) and "No space left on device" in error.message
            assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_card_has_data_recipe_and_what_was_measured_with_intervals(
    run_folder: Path, tmp_path: Path
) -> None:
    change(run_folder / "manifest.json", data_sha256={"data/train.parquet": "ab12"})
    change(run_folder / "recipe.yaml", model={"path": "org/base"}, env={"token": "secret-of-mine"})
    with (run_folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "val_accuracy": 0.75, "val_n": 16}\n')
    make_evaluation(run_folder.parent, "eval-mine", tasks=40, attempts=1, model=str(model_of(run_folder)))
    make_evaluation(run_folder.parent, "eval-earlier", model=str(model_of(run_folder, 1)))
    done = run("one", "--to", "out", "--no-proof")
    assert done.exit_code == 0, done.output
    card = Path("out/README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert (front["base_model"], front["library_name"]) == ("org/base", "transformers")
    assert "| the run's validation, step 2 | 16 | 1 | 75.0% | 50.5% to 89.8% |" in card
    assert re.search(
        r"\| eval-mine: data/products.jsonl \| \d+ \| 1 \| [\d.]+% \| [\d.]+% to [\d.]+% \|", card
    )
    assert "eval-earlier" not in card and "step 1 |" not in card
    assert "| `data/train.parquet` | `ab12` |" in card
    recipe = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert recipe == {
        "name": "one",
        "model": {"path": "org/base"},
        "env": {"token": "***"},
        "trainer": {"steps": 2},
    }


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**yaml.safe_load(file.read_text()), **values}))


def push(url: str, token: str) -> "subprocess.CompletedProcess[str]":
    # The hub's address is read when its library is imported.
    arguments = ["runs", "checkpoint", "one", "--hub", REPOSITORY, "--no-proof", "--json"]
    return subprocess.run(
        [sys.executable, "-m", "aworld_train", *arguments],
        env={
            **os.environ,
            "HF_ENDPOINT": url,
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_model_is_pushed_in_one_commit_with_no_old_weights_beside_it(tmp_path: Path) -> None:
    files = {"README.md": b"of the user", "model-00001-of-00002.safetensors": b"old", ".gitattributes": b""}
    requests: list[tuple[str, object]] = []
    with hub_for_pushing(files, TOKEN, requests) as url:
        done = push(url, TOKEN)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["hub"] == f"{url}/{REPOSITORY}/commit/1"
        refused = push(url, "hf_another_token")
        del files["README.md"]
        again = [push(url, TOKEN).returncode for _ in range(2)]
    assert requests[0][1] == {"name": "tasks", "organization": "someone", "visibility": "private"}
    assert again == [0, 0] and sum("/commit/" in path for path, _ in requests) == 3
    pushed = {file.name: file.read_bytes() for file in SHIPPED.iterdir() if file.name != "config.json"}
    assert {name: files[name] for name in pushed} == pushed
    assert files.keys() == {*pushed, "config.json", "README.md", ".gitattributes"}
    assert b"# one, step 2" in files["README.md"]
    assert TOKEN not in done.stdout + done.stderr
    assert (
        refused.returncode == 1
        and "someone/tasks cannot be pushed to" in json.loads(refused.stdout)["error"]["message"]
    )
    assert "hf_another_token" not in refused.stdout + refused.stderr
    assert not [path for path in tmp_path.iterdir() if path.name != "runs"]
