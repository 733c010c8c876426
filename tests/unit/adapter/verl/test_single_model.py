"""The model of single episodes: sampled in this process, or wherever it is served, with what each of them can do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging

from aworld_train.adapter.verl import single_model
from aworld_train.adapter.verl.cpu.sampling import MAX_TOP_LOGPROBS
from aworld_train.adapter.verl.single_model import VerlLoadedModel
from aworld_train.recipe.schema import Device, Engine, Recipe
from aworld_train.rollout.images import NO_IMAGES, NoImages
from aworld_train.rollout.model import SampledTokens, SamplingParams
from tests.agent_loops import TOKENIZER
from tests.models import tiny_qwen3
from tests.vllm_stub import VllmStub

DRAWN = [7, 8, 9]
SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=-1, stop=("Stop.",))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_qwen3(len(TOKENIZER)).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """The engine chooses how many threads this process computes with."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Which engines' images the model is asked for; None is that of a served model."""
    requested_engines: list[str | None] = []

    def image_tokens(processor: Any, engine: str | None) -> NoImages:
        requested_engines.append(engine)
        return NO_IMAGES

    monkeypatch.setattr(single_model, "image_tokens", image_tokens)
    return requested_engines


def recipe_of(model_dir: Path, engine: Engine) -> Recipe:
    recipe = Recipe()
    recipe.model.path, recipe.cluster.device = str(model_dir), Device.cpu
    recipe.rollout.engine, recipe.rollout.max_response_tokens = engine, 20
    recipe.raw = {"data": {"apply_chat_template_kwargs": {"enable_thinking": False}}}
    return recipe


async def sample(loaded: VerlLoadedModel) -> SampledTokens:
    return await loaded.for_episode().generate("request", [1, 2], SAMPLING, max_tokens=3)


async def test_the_transformers_engine_samples_in_this_process(
    model_dir: Path, tmp_path: Path, engines: list[str | None]
) -> None:
    logging.enable_progress_bar()
    loaded = VerlLoadedModel(recipe_of(model_dir, Engine.transformers), tmp_path, None)
    assert (loaded.name, engines) == (model_dir.name, ["transformers"])
    assert loaded._engine._batcher._generator.initial_seed() == loaded._engine.config.seed, (
        "the first replica"
    )
    assert loaded._template_options == {"enable_thinking": False}
    assert not logging.is_progress_bar_enabled()
    assert loaded.for_episode().max_top_logprobs == MAX_TOP_LOGPROBS
    sampled = await sample(loaded)
    assert 1 <= len(sampled.tokens) == len(sampled.logprobs) <= 3
    await loaded.close()


async def test_a_model_that_is_served_elsewhere_is_asked_there_whatever_the_engine(
    model_dir: Path, tmp_path: Path, engines: list[str | None]
) -> None:
    with VllmStub(lambda prompt: DRAWN) as server:
        loaded = VerlLoadedModel(recipe_of(model_dir, Engine.transformers), tmp_path, server.url)
        assert loaded.for_episode().max_top_logprobs == 0
        assert (await sample(loaded)).tokens == DRAWN
        assert engines == [None] and server.bodies[0]["stop"] == ["Stop."]
        await loaded.close()


async def test_a_server_of_vllm_is_started_asked_with_its_key_and_stopped(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Path] = []

    class Server:
        key = "its key"

        def __init__(self, recipe: Recipe, folder: Path):
            self.url, self.folder = server.url, folder

        def stop(self) -> None:
            stopped.append(self.folder)

    monkeypatch.setattr(single_model, "ServedVllm", Server)
    with VllmStub(lambda prompt: DRAWN, key=Server.key) as server:
        loaded = VerlLoadedModel(recipe_of(model_dir, Engine.vllm), tmp_path, None)
        assert (await sample(loaded)).tokens == DRAWN
        assert not stopped
        await loaded.close()
    assert stopped == [tmp_path]
