"""The trainer's log-probabilities of sampled tokens, in this process: VeRL's class of model and its own formula.

Everything is in float32, as training is on CPU. On GPUs training rounds to bfloat16 in places, so there the trainer's
own are near these, as the engine's are.
"""

from collections.abc import Sequence

import torch
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import logging
from verl.utils.model import get_hf_auto_model_class
from verl.utils.torch_functional import logprobs_from_logits

from aworld_train.errors import ModelError
from aworld_train.recipe.device import device_of
from aworld_train.recipe.schema import Recipe


def trained_logprobs(
    recipe: Recipe, samples: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[list[float]]:
    logging.disable_progress_bar()
    model = _load(recipe)
    with torch.inference_mode():
        return [_logprobs(model, *sample, recipe.rollout.temperature) for sample in samples]


def _load(recipe: Recipe) -> PreTrainedModel:
    location, trusted = str(recipe.model.location), recipe.model.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(location, trust_remote_code=trusted)
        model = get_hf_auto_model_class(config).from_pretrained(
            location, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=trusted
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{location} cannot be loaded for training: {error}") from error
    loaded: PreTrainedModel = model.eval().to(device_of(recipe).value)
    return loaded


def _logprobs(
    model: PreTrainedModel, prompt: Sequence[int], response: Sequence[int], temperature: float
) -> list[float]:
    tokens = torch.tensor([[*prompt, *response]], device=model.device)
    # A token's logits are computed at the one before it.
    logits = model(input_ids=tokens, use_cache=False).logits[:, len(prompt) - 1 : -1]
    values: list[float] = logprobs_from_logits(
        logits.float() / temperature, tokens[:, len(prompt) :], inplace_backward=False
    )[0].tolist()
    return values
