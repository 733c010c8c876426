"""How much memory vLLM on CPU gets for keys, values and weights: enough for what a recipe plays, and no more."""

import json
from pathlib import Path

import pytest

from aworld_train.adapter.verl.vllm_on_cpu import cache_bytes, engine_keys
from aworld_train.recipe.schema import Recipe

MB = 1 << 20


def write_config(folder: Path, config: dict[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("attention", "numbers"),
    [
        ({"num_key_value_heads": 8, "head_dim": 128, "hidden_size": 1024}, 8 * 128),
        ({"hidden_size": 2048}, 16 * 128),
    ],
)
def test_the_cache_holds_all_episodes_at_a_time_within_the_part_of_memory(
    tmp_path: Path, attention: dict[str, object], numbers: int
) -> None:
    write_config(tmp_path, {"num_hidden_layers": 28, "num_attention_heads": 16, **attention})
    recipe = Recipe()
    recipe.model.path = str(tmp_path)
    recipe.rollout.max_running = 4
    recipe.dataset.max_prompt_tokens, recipe.rollout.max_response_tokens = 500, 500
    # Keys and values of 28 layers, of so many numbers of 4 bytes, for 4 episodes of 1000 tokens.
    assert cache_bytes(recipe) == 2 * 28 * numbers * 4 * 4 * 1000
    recipe.rollout.gpu_memory = 1e-3
    assert cache_bytes(recipe) < 256 * MB


def test_a_small_model_has_a_cache_that_is_not_small(tmp_path: Path) -> None:
    write_config(tmp_path, {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    recipe = Recipe()
    recipe.model.path, recipe.rollout.max_running = str(tmp_path), 4
    assert cache_bytes(recipe) == 256 * MB


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": "28", "num_attention_heads": 16, "hidden_size": 1024},
        {"num_hidden_layers": 28, "hidden_size": 1024},
        {"num_hidden_layers": 28, "num_attention_heads": 16},
    ],
)
def test_a_model_that_is_not_known_may_take_all_that_it_is_given(
    tmp_path: Path, config: dict[str, object]
) -> None:
    write_config(tmp_path, config)
    recipe = Recipe()
    recipe.model.path = str(tmp_path)
    whole = cache_bytes(recipe)
    recipe.rollout.gpu_memory /= 2
    assert cache_bytes(recipe) == pytest.approx(whole / 2, rel=1e-6)


@pytest.mark.parametrize(("vocabulary", "megabytes"), [(151_936, 594), (256, 64)])
def test_the_largest_weight_fits_into_the_memory_through_which_weights_go(
    tmp_path: Path, vocabulary: int, megabytes: int
) -> None:
    write_config(tmp_path, {"vocab_size": vocabulary, "hidden_size": 1024})
    recipe = Recipe()
    recipe.model.path = str(tmp_path)
    keys = engine_keys(recipe)
    assert keys["checkpoint_engine.update_weights_bucket_megabytes"] == megabytes
    assert keys["enable_sleep_mode"] is False, "which vLLM has on GPUs alone"
