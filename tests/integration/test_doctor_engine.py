"""``doctor --engine`` with the real engine ``transformers`` and a real model."""

import json
import subprocess

import pytest

from tests import warm
from tests.locations import REPOSITORY
from tests.models import tiny_qwen3


def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return warm.run("-m", "aworld_train", "doctor", *arguments, timeout=240, cwd=REPOSITORY, kind=warm.VERL)


@pytest.fixture(scope="module")
def overrides(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from tests.models import shipped_tokenizer

    folder = tmp_path_factory.mktemp("engine")
    words = shipped_tokenizer()
    tiny_qwen3(len(words), eos_token_id=words.eos_token_id).save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    build = ("dataset", "build", "arithmetic", "--out", str(folder / "data"))
    warm.run("-m", "aworld_train", *build, timeout=240, cwd=REPOSITORY, check=True)
    return [
        f"model.path={folder / 'model'}",
        f"dataset.train={folder / 'data/train.parquet'}",
        f"dataset.val={folder / 'data/val.parquet'}",
    ]


def test_transformers_samples_what_the_trainer_computes(overrides: list[str]) -> None:
    done = doctor("recipes/quickstart.yaml", *overrides, "rollout.temperature=0.7", "--engine", "--json")
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["area"] == "engine"]
    assert finding["status"] == "ok", finding
    assert "transformers in float32: the probabilities of " in finding["what"]
    assert finding["what"].endswith(", which is rounding.")


@pytest.mark.parametrize("override", ["rollout.top_p=0.8", "rollout.top_k=20"])
def test_a_sampling_that_a_run_refuses_is_not_measured(overrides: list[str], override: str) -> None:
    done = doctor("recipes/quickstart.yaml", *overrides, override, "--engine", "--json")
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["area"] == "engine"]
    assert (done.returncode, finding["status"]) == (1, "fail")
    assert f"were not compared: {override.replace('=', ' is ')}: training samples from the" in finding["what"]


def test_an_engine_that_is_not_there_fails(overrides: list[str]) -> None:
    pytest.importorskip("verl", reason="needs the extra cpu")
    try:
        import vllm  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("vLLM is installed")
    more = ("rollout.engine=vllm", "cluster.device=cpu", "--engine")
    done = doctor("recipes/quickstart.yaml", *overrides, *more)
    assert done.returncode == 1
    assert "rollout.engine is vllm, which is not installed" in " ".join(done.stdout.split())


def test_engine_needs_a_recipe() -> None:
    done = doctor("--engine")
    assert done.returncode == 2 and "name the recipe" in done.stderr
