"""The trainer's log-probabilities outside a run are those of the model's softmax, at the recipe's temperature."""

from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from aworld_train.adapter.verl.trained_logprobs import trained_logprobs
from aworld_train.errors import ModelError
from aworld_train.recipe.schema import Device, Recipe
from tests.models import tiny_qwen3

SAMPLES = [([1, 2, 3], [4, 5]), ([9], [8, 7, 6, 5])]


def recipe_of(folder: Path, temperature: float) -> Recipe:
    recipe = Recipe()
    recipe.model.path, recipe.rollout.temperature = str(folder), temperature
    recipe.cluster.device = Device.cpu
    return recipe


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_they_are_the_softmax_s_of_each_sampled_token(tmp_path: Path, temperature: float) -> None:
    model = tiny_qwen3(64)
    model.save_pretrained(tmp_path)
    logging.enable_progress_bar()
    computed = trained_logprobs(recipe_of(tmp_path, temperature), SAMPLES)
    assert not logging.is_progress_bar_enabled()
    for (prompt, response), logprobs in zip(SAMPLES, computed, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response])).logits[0] / temperature
        expected = [
            torch.log_softmax(logits[len(prompt) - 1 + place], dim=-1)[token].item()
            for place, token in enumerate(response)
        ]
        assert logprobs == pytest.approx(expected, abs=1e-5)


def test_a_model_that_cannot_be_loaded_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded for training"):
        trained_logprobs(recipe_of(tmp_path, 1.0), SAMPLES)
