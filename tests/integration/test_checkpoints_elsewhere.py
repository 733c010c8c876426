"""What VeRL trained and saved loads in other versions and programs, and gives the trainer's probabilities there."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from actor_update import rows_of
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from aworld_train.adapter.verl import checkpoints
from tests import warm
from tests.aworld_environment import run_with, transformers4_python, vllm_python_or_skip
from tests.integration.test_actor_on_gloo import overrides
from tests.locations import REPOSITORY
from tests.model_families import VOCABULARY, make_family

pytestmark = pytest.mark.timeout(1200)

ROWS, TOKENS = 4, 48
FAMILIES = {"qwen3": [], "llama": [], "plain": [], "lora": ["model.lora.rank=4", "model.lora.alpha=64"]}
TOLERANCE = 5e-5
"""Of log-probabilities in float32; up to 1e-5 were measured, and another base of the positions makes 50 times it."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Of each family the input model, the model in the checkpoint after an update, and the trainer's probabilities."""
    folder = tmp_path_factory.mktemp("elsewhere")
    models = {name: make_family("qwen3" if name == "lora" else name, folder / name) for name in FAMILIES}
    cases = [
        {
            "name": name,
            "rows": ROWS,
            "tokens": TOKENS,
            "save": str(folder / f"run-{name}" / "global_step_1" / "actor"),
            "overrides": [
                *overrides(models[name], "trainer.max_batch_tokens=100", "model.attention=sdpa", *more),
                "cluster.gpus_per_node=1",
            ],
        }
        for name, more in FAMILIES.items()
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(REPOSITORY / "scripts")
    warm.run(
        *("-m", "tests.gloo_actor", str(folder / "cases.json"), "0", "1", str(folder)),
        timeout=900,
        cwd=REPOSITORY,
        env=environment,
        check=True,
        kind=warm.LIBRARIES,
    )
    found = {}
    for name, model in models.items():
        written = checkpoints.model_in(folder / f"run-{name}" / "global_step_1")
        assert written is not None
        shutil.copytree(folder / f"run-{name}", folder / f"raw-{name}")
        checkpoints.complete(written, {"path": str(model)})
        answers = json.loads((folder / f"{name}-0.json").read_text())
        moved = (torch.tensor(answers["after"]) - torch.tensor(answers["before"])).abs().max()
        assert moved > 50 * TOLERANCE, "else the update proves nothing"
        vocabulary = 502 if name == "plain" else VOCABULARY
        rows = rows_of(ROWS, TOKENS, vocabulary)["input_ids"].to_padded_tensor(0).tolist()
        found[name] = {
            "input": str(model),
            "model": str(written),
            "rows": rows,
            "count": len(answers["after"][0]),
            "logprobs": answers["after"],
        }
    return found


def read(
    python: Path, program: str, cases: Sequence[Mapping[str, Any]], folder: Path
) -> list[dict[str, Any]]:
    """What a program makes of the models."""
    (folder / "questions.json").write_text(json.dumps(cases))
    script = str(REPOSITORY / "tests" / "checkpoint_reader.py")
    questions = str(folder / "questions.json")
    done = run_with(python, script, program, questions, timeout=900, OMP_NUM_THREADS="1")
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def assert_reads_what_was_trained(answer: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    assert answer["dtype"] == "float32"
    assert answer["texts"] == answer["texts of the input"]
    assert difference(answer, case) < TOLERANCE
    # The figures of the table in docs/how-to/checkpoint.md, shown by -rP.
    sys.stdout.write(f"{case['input']}, read by {answer['version']}: {difference(answer, case):.2g}\n")


def difference(answer: Mapping[str, Any], case: Mapping[str, Any]) -> float:
    return float((torch.tensor(answer["logprobs"]) - torch.tensor(case["logprobs"])).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_checkpoint_has_the_input_models_files_and_what_its_weights_are(
    family: str, saved: dict[str, dict[str, Any]]
) -> None:
    source, model = Path(saved[family]["input"]), Path(saved[family]["model"])
    ours = {"config.json", "model.safetensors"}
    assert {file.name for file in model.iterdir()} == {file.name for file in source.iterdir()}
    for file in source.iterdir():
        assert file.name in ours or file.read_bytes() == (model / file.name).read_bytes()
    config = json.loads((model / "config.json").read_text())
    before = json.loads((source / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "float32"
    for key in ("rope_theta", "rope_scaling"):
        assert config[key] == before[key]


@pytest.mark.parametrize(
    "transformers",
    ["5", "4.57.6", pytest.param("4.51.3", marks=pytest.mark.slow)],
    ids=lambda text: f"v{text}",
)
def test_transformers_computes_what_the_trainer_does(
    transformers: str, saved: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    python = Path(sys.executable) if transformers == "5" else transformers4_python(transformers)
    for case, answer in zip(
        saved.values(), read(python, "transformers", [*saved.values()], tmp_path), strict=True
    ):
        assert answer["version"].startswith(transformers)
        assert_reads_what_was_trained(answer, case)
        config = json.loads(Path(case["input"], "config.json").read_text())
        if config["rope_scaling"] is None:
            assert answer["inverse_frequency"] == pytest.approx(config["rope_theta"] ** (-2 / 32), rel=1e-4)


def test_without_the_old_keys_transformers_4_would_compute_something_else(
    saved: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "as-verl-writes-it"
    shutil.copytree(saved["qwen3"]["model"], folder)
    config = json.loads((folder / "config.json").read_text())
    del config["rope_theta"], config["rope_scaling"]
    (folder / "config.json").write_text(json.dumps(config))
    case = saved["qwen3"] | {"model": str(folder)}
    (answer,) = read(transformers4_python("4.57.6"), "transformers", [case], tmp_path)
    assert answer["inverse_frequency"] == pytest.approx(1e4 ** (-2 / 32), rel=1e-4)
    assert difference(answer, case) > 50 * TOLERANCE


EXPORT = """
import sys
from types import SimpleNamespace
from aworld_train import module_process
module_process.sys = SimpleNamespace(executable=sys.argv.pop(1))
from aworld_train.cli.main import main
main()
"""


def export(run: Path, *arguments: str) -> str:
    """What ``runs checkpoint`` prints; it is a fork of what has torch, as is the process that loads the model."""
    done = warm.run(
        *("-c", EXPORT, warm.stand_in(warm.LIBRARIES), "runs", "checkpoint", str(run), *arguments),
        timeout=600,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        kind=warm.LIBRARIES,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("family", "lost", "dtype"),
    [("lora", "", "float32"), ("qwen3", "*.safetensors", "bfloat16")],
    ids=["as earlier versions left it", "shards alone"],
)
def test_other_checkpoints_are_completed_or_merged_when_they_are_exported(
    family: str, lost: str, dtype: str, saved: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    case = saved[family]
    run, raw = tmp_path / "run", Path(case["input"]).with_name(f"raw-{family}")
    stored = shutil.copytree(raw, run / "checkpoints") / "global_step_1"
    torch.save({}, stored / "data.pt")
    for file in (stored / "actor/huggingface").glob(lost) if lost else ():
        file.unlink()
    (run / "recipe.yaml").write_text("name: run\n")
    (run / "verl.yaml").write_text(json.dumps({"actor_rollout_ref": {"model": {"path": case["input"]}}}))
    exported = json.loads(export(run, "--to", str(tmp_path / "out"), "--json"))
    assert exported["dtype"] == dtype
    assert exported["proof"]["class"] == "Qwen3ForCausalLM"
    trained, written = (
        load_file(Path(folder, "model.safetensors")) for folder in (case["model"], tmp_path / "out")
    )
    assert written.keys() == trained.keys()
    for name, weight in trained.items():
        assert torch.equal(written[name], weight.to(getattr(torch, dtype)))
    for file in ("tokenizer_config.json", "generation_config.json", "vocab.json"):
        assert Path(tmp_path, "out", file).read_bytes() == Path(case["input"], file).read_bytes()
    if family == "lora":
        export(run, "--adapter", "--to", str(tmp_path / "adapter"))
        base = AutoModelForCausalLM.from_pretrained(case["input"], dtype=torch.float32)
        logits = PeftModel.from_pretrained(base, tmp_path / "adapter")(torch.tensor(case["rows"])).logits
        ids = torch.tensor(case["rows"])[:, -case["count"] :, None]
        own = {
            "logprobs": logits[:, -case["count"] - 1 : -1].log_softmax(-1).gather(-1, ids)[..., 0].tolist()
        }
        assert difference(own, case) < TOLERANCE


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("families", [["qwen3"], ["llama", "plain", "lora"]], ids="-".join)
def test_vllm_computes_what_the_trainer_does(
    families: list[str], saved: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    cases = [saved[name] for name in families]
    for case, answer in zip(cases, read(vllm_python_or_skip(), "vllm", cases, tmp_path), strict=True):
        assert_reads_what_was_trained(answer, case)
