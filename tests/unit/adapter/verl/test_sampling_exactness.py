"""What agents ask for and a model's folder recommends leaves probabilities that are the trainer's, or is refused.

``tests/e2e/test_vllm.py`` sets ``AWORLD_TRAIN_TESTS_SAMPLER=vllm``: a real vLLM, which takes the folder's advice.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl import served_vllm
from aworld_train.adapter.verl.single_model import VerlLoadedModel
from aworld_train.adapter.verl.trained_logprobs import trained_logprobs
from aworld_train.recipe.schema import Device, Engine, Recipe
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.graph import Row
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.model_gateway import ModelGatewaySession
from aworld_train.rollout.model_gateway.sampling import NEUTRAL
from aworld_train.rollout.token_episode import TokenEpisode
from tests.agent_loops import TOKENIZER
from tests.gateways import MODEL, serving
from tests.models import tiny_qwen3
from tests.sampling_parameters import ALLOWED, CHANGING, OF_PROMPT_AND_ANSWER, RECOMMENDED

ENGINE = Engine(os.environ.get("AWORLD_TRAIN_TESTS_SAMPLER", "transformers"))
MAX_DIFFERENCE = {Engine.transformers: 2e-5, Engine.vllm: 2e-4}[ENGINE]
"""Of the logarithm of a probability, in float32; whatever changes the distribution changes some by 0.1 and more."""
CHOICES = {name: st.sampled_from(values) for name, values in ALLOWED.items()}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("model")
    # Heads as small as vLLM has them, and logits of a spread of about 2, as a trained model's.
    model = tiny_qwen3(len(TOKENIZER), eos_token_id=TOKENIZER.eos_token_id, head_dim=32)
    with torch.no_grad():
        model.model.norm.weight.mul_(20)
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(RECOMMENDED))
    recipe = Recipe()
    recipe.model.path, recipe.cluster.device, recipe.rollout.engine = str(folder), Device.cpu, ENGINE
    recipe.dataset.max_prompt_tokens = recipe.rollout.max_response_tokens = 512
    return recipe


@pytest.fixture(scope="module")
def loaded(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerlLoadedModel]:
    threads, arguments = torch.get_num_threads(), served_vllm.server_arguments
    with pytest.MonkeyPatch.context() as patch:
        # As a server has it that somebody else has started.
        patch.setattr(
            served_vllm, "server_arguments", lambda recipe: {**arguments(recipe), "generation_config": "auto"}
        )
        model = VerlLoadedModel(recipe, tmp_path_factory.mktemp("files"), None)
    torch.set_num_threads(threads)
    yield model
    asyncio.run(model.close())


@asynccontextmanager
async def episode_of(
    loaded: VerlLoadedModel, temperature: float = 1.0
) -> AsyncIterator[tuple[TokenEpisode, ModelGatewaySession]]:
    limits = EpisodeLimits(100, 512, 512, SamplingParams(temperature, top_p=1.0, top_k=-1))
    episode = TokenEpisode(loaded.for_episode(), limits)
    async with serving() as gateway:
        yield episode, gateway.open_session(MODEL, episode.conversation, episode.rules)


async def ask(session: ModelGatewaySession, body: Mapping[str, Any]) -> int:
    messages = [{"role": "user", "content": "What is 6*7?"}]
    request = {"model": MODEL, "messages": messages, "max_tokens": 8, "logprobs": True, **body}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{session.address()}/chat/completions", json=request) as response,
    ):
        await response.read()
        return response.status


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@given(bodies=st.lists(st.fixed_dictionaries({}, optional=CHOICES), min_size=1, max_size=4))
def test_what_is_accepted_leaves_the_probabilities_that_the_trainer_computes(
    loaded: VerlLoadedModel, recipe: Recipe, temperature: float, bodies: list[dict[str, Any]]
) -> None:
    async def play() -> list[Row]:
        async with episode_of(loaded, temperature) as (episode, session):
            statuses = [await ask(session, body) for body in bodies]
            assert statuses == [200] * len(bodies)
            return [row for _, row in episode.rows()]

    rows = asyncio.run(play())
    trainer = replace(recipe, rollout=replace(recipe.rollout, temperature=temperature))
    trained = trained_logprobs(trainer, [(row.prompt, row.response) for row in rows])
    assert rows and all(any(row.mask) for row in rows)
    for row, logprobs in zip(rows, trained, strict=True):
        for is_sampled, engine_s, trainer_s in zip(row.mask, row.logprobs, logprobs, strict=True):
            assert not is_sampled or engine_s == pytest.approx(trainer_s, abs=MAX_DIFFERENCE)


def test_what_would_change_them_is_refused_and_samples_nothing(loaded: VerlLoadedModel) -> None:
    async def play() -> dict[str, int]:
        async with episode_of(loaded) as (episode, session):
            statuses = {name: await ask(session, {name: value}) for name, value in CHANGING.items()}
            assert episode.rows() == []
            return statuses

    assert asyncio.run(play()) == dict.fromkeys(CHANGING, 400)


def test_no_parameter_that_changes_sampling_is_forgotten() -> None:
    assert set(NEUTRAL) - set(CHANGING) == OF_PROMPT_AND_ANSWER
