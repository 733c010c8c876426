"""The engine vllm, on CPU: the real vLLM samples, takes new weights, and ends with its run, whatever ends that."""

import json
import re
import shutil
import time
from pathlib import Path

import psutil
import pytest

from aworld_train.model.tiny import SHIPPED
from aworld_train.model.weights import entries
from tests.aworld_environment import REPOSITORY, run_with, vllm_python_or_skip
from tests.e2e.conftest import SMALL, Workspace, assert_all_gone, descendants, environments_of, find, wait_for
from tests.sampling_parameters import RECOMMENDED

pytestmark = [pytest.mark.e2e, pytest.mark.vllm, pytest.mark.timeout(1800)]

PLUGIN = Path(__file__).parents[1] / "data" / "vllm_plugin"
EXACTNESS = REPOSITORY / "tests/unit/adapter/verl/test_sampling_exactness.py"
STEPS = 2
RUN = [
    *SMALL,
    f"trainer.steps={STEPS}",
    f"trainer.val_every={STEPS}",
    "rollout.engine=vllm",
    "cluster.device=cpu",
]
MAX_PROBABILITY_DIFFERENCE = 5e-5  # in fp32; up to 1.5e-5 was measured, and other weights differ by far more
MAX_SECONDS = 90
SYNC_SECONDS = 30


@pytest.fixture(scope="module")
def python() -> Path:
    return vllm_python_or_skip()


def arguments(name: str, *more: str) -> list[str]:
    return ["train", "recipes/quickstart.yaml", f"name={name}", *RUN, *more]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("vllm", []),
        pytest.param("vllm-lora", ["model.lora.rank=8", "trainer.lr=1e-3"], marks=pytest.mark.slow),
    ],
)
def test_what_vllm_samples_is_what_is_trained_on(
    workspace: Workspace, python: Path, tmp_path: Path, name: str, more: list[str]
) -> None:
    model = shutil.copytree(workspace.path / "models" / "tiny", tmp_path / "model")
    recommended = model / "generation_config.json"
    recommended.write_text(json.dumps(json.loads(recommended.read_text()) | RECOMMENDED))
    own = (f"model.path={model}", "rollout.temperature=0.8", *more)
    done = workspace.run(*arguments(name, *own), "--json", seconds=1200, python=python)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["steps_done"], summary["episodes"]) == ("completed", STEPS, STEPS * 16)
    assert summary["tool_calls"] > 0
    rows = workspace.metrics(name)
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    # Weights that did not reach vLLM would be seen from the second step on.
    assert all(row["rollout_probs_diff_max"] < MAX_PROBABILITY_DIFFERENCE for row in rows[1:]), rows
    # With LoRA too the checkpoint's model is one that other programs load.
    trained, untrained = Path(summary["checkpoint"]) / "model.safetensors", SHIPPED / "model.safetensors"
    assert entries(trained).keys() == entries(untrained).keys()
    assert trained.read_bytes() != untrained.read_bytes()


@pytest.mark.slow
def test_what_agents_ask_for_and_folders_recommend_leaves_the_trainer_s_probabilities(python: Path) -> None:
    """The properties that hold for the engine of the CPU, with a vLLM that takes defaults from the model's folder."""
    run_with(
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXACTNESS.relative_to(REPOSITORY))),
        timeout=600,
        AWORLD_TRAIN_TESTS_SAMPLER="vllm",
    )


@pytest.mark.slow
def test_a_single_episode_has_the_same_greedy_tokens_with_both_engines(
    workspace: Workspace, python: Path
) -> None:
    rows = []
    for engine in ("vllm", "transformers"):
        command = (
            "rollout",
            "recipes/quickstart.yaml",
            "--engine",
            engine,
            "cluster.device=cpu",
            "--greedy",
            "--json",
        )
        done = workspace.run(*command, python=python)
        assert done.returncode == 0, done.stderr
        (episode,) = json.loads(done.stdout)["episodes"]
        rows.append(episode["rows"])
    assert [row["response_ids"] for row in rows[0]] == [row["response_ids"] for row in rows[1]]
    for mine, its in zip(*rows, strict=True):
        assert mine["response_logprobs"] == pytest.approx(its["response_logprobs"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "loss"),
    [
        ("VLLM::EngineCore", "EngineDeadError"),
        ("VLLM::Worker", "EngineDeadError"),
        ("ray::vLLMHttpServer", "ActorDiedError"),
    ],
)
def test_a_killed_process_of_vllm_ends_the_run_and_resume_goes_on(
    workspace: Workspace, python: Path, victim: str, loss: str
) -> None:
    name = "vllm-" + victim.rpartition(":")[2]
    process = workspace.start(*arguments(name), python=python)
    checkpoints = workspace.runs / name / "checkpoints"
    wait_for("checkpoint", lambda: [*checkpoints.glob("global_step_1/actor/huggingface/*")], 900, process)
    run = [psutil.Process(process.pid), *descendants(process.pid)]
    everything = [*run[1:], *environments_of(run)]
    found = find(everything, victim)
    assert found is not None, [each.cmdline() for each in everything]
    found.kill()
    _, err = process.communicate(timeout=MAX_SECONDS)
    assert process.returncode == 1 and "Traceback" not in err, err
    message = err.strip().splitlines()[-1]
    assert loss in message and "--resume" in message, err
    assert workspace.summary(name)["status"] == "failed"
    assert_all_gone(everything)
    done = workspace.run(*arguments(name), "--resume", "--quiet", seconds=1200, python=python)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in workspace.metrics(name)] == list(range(STEPS + 1))


@pytest.mark.slow
@pytest.mark.parametrize("plugin", ["failing_sync", "failing_load"])
def test_weights_that_vllm_does_not_take_end_the_run_with_their_cause(
    workspace: Workspace, python: Path, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", plugin)
    process = workspace.start(*arguments(plugin), python=python, also=PLUGIN)
    run = workspace.runs / plugin
    wait_for(
        "first step",
        lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text(),
        900,
        process,
    )
    began = time.monotonic()
    _, err = process.communicate(timeout=MAX_SECONDS + 300)
    assert process.returncode == 1 and "Traceback" not in err, err
    assert "the planted failure of a transfer" in err
    assert time.monotonic() - began < SYNC_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [("float32", 0.0, 1e-4), ("bfloat16", 1e-3, 1.0)])
def test_doctor_says_how_far_vllm_is_from_the_trainer(
    workspace: Workspace, python: Path, kind: str, low: float, high: float
) -> None:
    overrides = ("rollout.engine=vllm", "cluster.device=cpu", f"rollout.dtype={kind}")
    done = workspace.run("doctor", "recipes/quickstart.yaml", *overrides, "--engine", "--json", python=python)
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["area"] == "engine"]
    figures = re.search(rf"vllm in {kind}: .* by (\S+) on average and (\S+) at most", finding["what"])
    assert finding["status"] == "ok" and figures, finding
    assert low < float(figures[2]) < high and float(figures[1]) < float(figures[2])
