"""How far the engine's probabilities are from the trainer's: what is measured, and what is said about it."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.adapter.base import register, unregister
from aworld_train.doctor import FindingStatus
from aworld_train.doctor.exactness import Differences, check_exactness, differences_of, finding_of
from aworld_train.recipe.schema import Device, Engine, Recipe, RolloutCorrection, SamplingType
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from tests.calculator_model import SKILL, CalculatorModel
from tests.second_framework import Counting

FAR = 0.25
FIGURES = [
    # engine, numbers, mean, highest, status, words of the remedy
    ("transformers", "float32", 1e-7, 1e-6, "ok", ""),
    ("vllm", "float32", 1e-6, 9e-4, "ok", ""),
    ("vllm", "float32", 1e-6, 2e-3, "warn", "algorithm.rollout_correction=token"),
    ("vllm", "bfloat16", 0.004, 0.9, "ok", ""),
    ("vllm", "bfloat16", 0.03, 0.9, "warn", "algorithm.rollout_correction=token"),
    ("vllm", "bfloat16", math.nan, math.nan, "fail", "rollout.dtype=float32"),
]


class Near(Counting):
    """A trainer whose log-probabilities are the engine's, ln 1/e, but for the last of each answer."""

    name = "near"
    engine_error: Exception | None = None

    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> Any:
        model = CalculatorModel(Path(recipe.model.path or ""))
        if self.engine_error is not None:
            model.generate = self._fail  # type: ignore[method-assign]
        return model

    def trained_logprobs(
        self, recipe: Recipe, folder: Path, samples: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        return [[-1.0] * (len(response) - 1) + [math.log(math.exp(-1) + FAR)] for _, response in samples]

    async def _fail(self, *arguments: Any) -> Any:
        assert self.engine_error is not None
        raise self.engine_error


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipe]:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    (model / "chat_template.jinja").write_text("{}")
    (model / SKILL).write_text("0")
    tasks = [[{"role": "user", "content": f"What is {number}*7?"}] for number in range(40)]
    prompts = {
        "data_source": ["products"] * 40,
        "prompt": tasks,
        "reward_model": [{"style": "rule", "ground_truth": "7"}] * 40,
        "extra_info": [{"index": number, "scorer": "number"} for number in range(40)],
        "agent_name": ["mcp_agent"] * 40,
    }
    pq.write_table(pa.table(prompts), tmp_path / "val.parquet")
    recipe = Recipe()
    recipe.model.path, recipe.dataset.val = str(model), str(tmp_path / "val.parquet")
    recipe.trainer.framework, recipe.cluster.device = "near", Device.cpu
    register("near", Near)
    yield recipe
    unregister("near")


def test_differences_are_of_probabilities_not_of_their_logarithms() -> None:
    halves, quarters = math.log(0.5), math.log(0.25)
    differences = differences_of([[halves, -30.0], [quarters]], [[quarters, -40.0], [quarters]])
    assert (differences.tokens, differences.highest) == (3, pytest.approx(0.25))
    assert differences.mean == pytest.approx(0.25 / 3)


def test_a_probability_that_is_no_number_is_not_the_smallest() -> None:
    assert math.isnan(differences_of([[-1.0, math.nan]], [[-1.0, -1.0]]).highest)


@pytest.mark.parametrize(("engine", "kind", "mean", "highest", "status", "remedy"), FIGURES)
def test_what_is_rounding_is_fine_and_what_is_more_has_a_remedy(
    engine: str, kind: str, mean: float, highest: float, status: str, remedy: str
) -> None:
    recipe = Recipe()
    recipe.cluster.device = Device.cpu
    recipe.rollout.engine, recipe.rollout.dtype = Engine(engine), SamplingType(kind)
    finding = finding_of(recipe, Differences(500, mean, highest))
    assert finding.status is FindingStatus(status) and remedy in finding.remedy
    assert bool(finding.remedy) == (finding.status is not FindingStatus.ok)
    assert finding.what.startswith(f"{engine} in {kind}: the probabilities of 500 sampled tokens")
    assert f"{mean:.1e} on average and {highest:.1e} at most" in finding.what


def test_a_recipe_that_corrects_already_is_not_told_to() -> None:
    recipe = Recipe()
    recipe.rollout.dtype = SamplingType.bfloat16
    recipe.algorithm.rollout_correction = RolloutCorrection.token
    finding = finding_of(recipe, Differences(500, 0.03, 0.9))
    assert finding.status is FindingStatus.warn and "Set rollout.dtype=float32" in finding.remedy


def test_engine_and_trainer_of_the_recipe_s_framework_are_compared_on_its_tasks(recipe: Recipe) -> None:
    finding = check_exactness(recipe)
    assert finding.status is FindingStatus.warn
    # "<answer>0</answer>" and the end, of 32 tasks.
    assert f"{FAR:.1e} at most" in finding.what and "more than rounding" in finding.what


def test_tokens_are_sampled_as_the_recipe_says(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()

    async def generate(
        self: Any, request_id: str, tokens: Any, sampling: SamplingParams, *limits: Any
    ) -> Any:
        used.add(sampling)
        return await sample(self, request_id, tokens, sampling, *limits)

    sample = CalculatorModel.generate
    monkeypatch.setattr(CalculatorModel, "generate", generate)
    recipe.rollout.temperature, recipe.rollout.top_p, recipe.rollout.top_k = 0.6, 0.8, 20
    check_exactness(recipe)
    assert used == {SamplingParams(0.6, 0.8, 20)}


def test_a_framework_that_computes_none_says_so(recipe: Recipe) -> None:
    register("near", Counting)
    finding = check_exactness(recipe)
    assert finding.status is FindingStatus.fail
    assert "The framework counting computes no probabilities outside a run" in finding.what


@pytest.mark.parametrize("error", [EpisodeFailure("the engine failed: gone"), KeyError("gone")])
def test_an_engine_that_fails_is_a_finding(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(Near, "engine_error", error)
    finding = check_exactness(recipe)
    assert finding.status is FindingStatus.fail and "gone" in finding.what and finding.remedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"val": None}, "has no dataset"),
        ({"val": "nowhere.parquet"}, "nowhere.parquet"),
        ({"max_prompt_tokens": 2}, "none of the first tasks fits"),
    ],
)
def test_a_recipe_without_tasks_is_a_finding(recipe: Recipe, change: dict[str, Any], message: str) -> None:
    for key, value in change.items():
        setattr(recipe.dataset, key, value)
    finding = check_exactness(recipe)
    assert finding.status is FindingStatus.fail and message in finding.what
