"""What does not fit a model's shape is refused with the recipe's key, and what is not known of it is not guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.model_checks import model_faults, text_config, whole
from aworld_train.recipe.schema import Recipe

HEADS = {"num_attention_heads": 12, "num_key_value_heads": 4}
ENGINE, TRAINER, LENGTH = (
    "rollout.tensor_parallel",
    "trainer.sequence_parallel",
    "rollout.max_response_tokens",
)


def recipe(folder: Path, config: Any, *overrides: str) -> Recipe:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    sizes = ["cluster.gpus_per_node=48", "trainer.batch_size=48", "rollout.n=48", f"model.path={folder}"]
    return recipes.load("base/gpu-1", [*sizes, *overrides])


def faults(folder: Path, config: Any, *overrides: str) -> dict[str, str]:
    return {".".join(key): text for key, text in model_faults(recipe(folder, config, *overrides))}


@pytest.mark.parametrize(
    ("config", "parallel", "sentence"),
    [
        (HEADS, 8, "must divide the 12 attention heads of the model"),
        (HEADS, 3, "must divide the 4 key and value heads of the model, or be a multiple of them"),
        (HEADS, 6, "must divide the 4 key and value heads of the model, or be a multiple of them"),
        (HEADS, 2, None),
        (HEADS, 4, None),
        (HEADS, 12, None),
        ({"num_attention_heads": 12}, 3, None),
        ({"num_attention_heads": 12}, 8, "must divide the 12 attention heads of the model"),
        ({"num_key_value_heads": 4}, 3, None),
    ],
)
@pytest.mark.parametrize("key", [ENGINE, TRAINER])
def test_those_that_share_a_sequence_or_an_engine_share_its_heads(
    tmp_path: Path, key: str, config: dict[str, int], parallel: int, sentence: str | None
) -> None:
    expected = {key: f"`{key}` ({parallel}) {sentence}"} if sentence else {}
    assert faults(tmp_path, config, f"{key}={parallel}") == expected


def test_an_engine_of_verl_s_has_the_context_without_a_stretch(tmp_path: Path) -> None:
    shape = {"max_position_embeddings": 100, "rope_scaling": {"rope_type": "yarn", "factor": 4}}
    assert faults(tmp_path, shape, "dataset.max_prompt_tokens=40", f"{LENGTH}=60") == {}
    refused = faults(tmp_path, shape, "dataset.max_prompt_tokens=40", f"{LENGTH}=61")
    assert list(refused) == [LENGTH]
    assert (
        "the model's context 100 (max_position_embeddings in its config.json, which VeRL" in refused[LENGTH]
    )


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({}, 100),
        ({"rope_scaling": {"factor": 2.5}}, 250),
        ({"rope_parameters": {"factor": 2, "original_max_position_embeddings": 60}}, 120),
        ({"rope_parameters": {"factor": 2}, "rope_scaling": {"factor": 9}}, 200),
        ({"rope_scaling": {"factor": 2, "original_max_position_embeddings": 40}}, 100),
        ({"rope_scaling": {"factor": True}}, 100),
        ({"rope_scaling": {"rope_type": "default"}}, 100),
        ({"rope_scaling": "yarn"}, 100),
    ],
)
def test_the_longest_episode_fits_into_the_context_that_the_model_s_positions_are_stretched_to(
    tmp_path: Path, config: dict[str, Any], context: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 100, **config}))

    def refused_at(tokens: int) -> dict[str, str]:
        lengths = {"dataset": {"max_prompt_tokens": 40}, "rollout": {"max_response_tokens": tokens - 40}}
        loaded = recipes.load({"model": {"path": str(tmp_path)}, **lengths})
        return {".".join(key): text for key, text in model_faults(loaded)}

    assert refused_at(context) == {}
    refused = refused_at(context + 1)
    assert list(refused) == [LENGTH]
    assert f"the longest episode has {context + 1} tokens" in refused[LENGTH]
    assert (
        f"and the model's context {context} (max_position_embeddings in its config.json)" in refused[LENGTH]
    )


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": 1, "text_config": {"b": 2}}, {"b": 2}),
        ({"a": 1, "text_config": "b"}, {"a": 1, "text_config": "b"}),
        ([1], None),
        ("not json", None),
    ],
)
def test_the_configuration_is_that_of_the_language_part(tmp_path: Path, config: Any, read: Any) -> None:
    assert text_config(recipe(tmp_path, config)) == read
    assert text_config(recipes.load({})) is None
    assert text_config(recipes.load({"model": {"path": "org/model"}})) is None


def test_a_shape_that_the_recipe_overrides_is_not_checked(tmp_path: Path) -> None:
    override = "verl.actor_rollout_ref.model.override_config.num_attention_heads=16"
    assert faults(tmp_path, HEADS, f"{ENGINE}=8", override) == {}


def test_a_size_is_a_positive_whole_number() -> None:
    values = {"a": 1, "b": 0, "c": -1, "d": True, "e": 2.0, "f": "3"}
    assert [whole(values, key) for key in "abcdefg"] == [1, None, None, None, None, None, None]


def test_experts_are_shared_where_the_model_has_some(tmp_path: Path) -> None:
    key = "verl.actor_rollout_ref.rollout.expert_parallel_size"
    refused = faults(tmp_path, HEADS, f"{key}=4")
    assert "the model has no experts" in refused[key]
    assert key not in faults(tmp_path, HEADS, f"{key}=1")
    assert key not in faults(tmp_path, HEADS | {"num_experts": 128}, f"{key}=4")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"target_modules": ["q_proj", "embed_tokens"]}, "takes in the embeddings"),
        ({"target_modules": ["q_proj"], "use_dora": True}, "has use_dora,"),
        ({"target_modules": ["q_proj"], "rank_pattern": {"q_proj": 4}}, "has rank_pattern,"),
        ({"target_modules": ["q_proj"], "use_dora": False, "rank_pattern": {}}, None),
    ],
)
def test_a_given_adapter_that_no_checkpoint_could_hold_is_refused(
    tmp_path: Path, settings: dict[str, Any], problem: str | None
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    key = "verl.actor_rollout_ref.model.lora_adapter_path"
    refusals = faults(tmp_path, {}, "model.lora.rank=8", f"{key}={tmp_path}")
    assert list(refusals) == ([key] if problem else [])
    assert problem is None or problem in refusals[key]


@pytest.mark.parametrize(
    ("targets", "excluded", "is_refused"),
    [
        (".*(q_proj|embed_tokens)", "", True),
        (".*", "", True),
        (".*", ".*embed_tokens|transformer.*|gpt_neox.*", False),
        ("all-linear", "", False),
        (".*q_proj", "", False),
        ("embed_tokens", "", False),  # as a whole name, which no module has
        ("*", "", False),  # no expression at all
    ],
)
def test_an_expression_that_takes_in_the_embeddings_is_refused(
    tmp_path: Path, targets: str, excluded: str, is_refused: bool
) -> None:
    key = "model.lora.target_modules"
    given = (f"{key}='{targets}'", f"verl.actor_rollout_ref.model.exclude_modules='{excluded}'")
    assert list(faults(tmp_path, {}, "model.lora.rank=8", *given)) == ([key] if is_refused else [])
    assert faults(tmp_path, {}, *given) == {}  # no adapter
