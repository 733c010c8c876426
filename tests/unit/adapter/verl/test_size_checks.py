"""Sizes that VeRL or vLLM would refuse after minutes are refused before, and those that they take are not."""

import json
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import own_keys
from aworld_train.adapter.verl.model_checks import FUSED, model_faults
from aworld_train.adapter.verl.size_checks import BATCHED_TOKENS, size_faults
from aworld_train.errors import RecipeError
from aworld_train.recipe.faults import Check

_GPU = ["rollout.engine=vllm"]
_BATCH = [*_GPU, "trainer.dynamic_batches=false", "trainer.microbatch_size=1", "rollout.n=2"]


def _faults(overrides: list[str]) -> dict[str, str]:
    recipe = recipes.load("base/gpu-1", overrides)
    return {".".join(key): text for key, text in size_faults(recipe)}


def _shared(batch: int) -> list[str]:
    return [*_BATCH, "cluster.gpus_per_node=4", "trainer.sequence_parallel=2", f"trainer.batch_size={batch}"]


def test_a_step_is_a_multiple_of_all_ranks_even_of_those_that_share_sequences() -> None:
    assert "the 6 episodes of one step" in _faults(_shared(3))["trainer.batch_size"]
    assert not _faults(_shared(4))
    assert not _faults([*_shared(3), "trainer.dynamic_batches=true"])


def test_sequences_that_more_ranks_share_than_there_are_have_one_fault() -> None:
    with pytest.raises(RecipeError, match=r"^[^\n]*sequence_parallel[^\n]*$"):
        recipes.load("base/gpu-1", [*_BATCH, "trainer.sequence_parallel=2"], also=[Check(size_faults)])


@pytest.mark.parametrize(("parallel", "nodes", "per_node"), [(2, 2, 3), (3, 3, 2)])
def test_an_engine_has_gpus_of_one_machine_or_all_of_several(
    parallel: int, nodes: int, per_node: int
) -> None:
    sizes = [
        *_BATCH,
        "cluster.launcher=slurm",
        f"cluster.nodes={nodes}",
        f"cluster.gpus_per_node={per_node}",
        "trainer.batch_size=6",
    ]
    assert "rollout.tensor_parallel" in _faults([*sizes, f"rollout.tensor_parallel={parallel}"])
    assert not _faults([*sizes, f"rollout.tensor_parallel={per_node}"])
    assert not _faults([*sizes, f"rollout.tensor_parallel={per_node * nodes}"])


def test_the_engine_takes_no_larger_adapters() -> None:
    assert "up to 512" in _faults([*_GPU, "model.lora.rank=513"])["model.lora.rank"]
    assert not _faults([*_GPU, "model.lora.rank=512"])


def test_a_pass_of_the_engine_has_a_token_for_each_sequence() -> None:
    many = f"rollout.max_running={BATCHED_TOKENS + 1}"
    tokens = "verl.actor_rollout_ref.rollout.max_num_batched_tokens"
    assert "max_num_batched_tokens" in _faults([*_GPU, many])["rollout.max_running"]
    assert not _faults([*_GPU, many, f"{tokens}={BATCHED_TOKENS + 1}"])
    assert "rollout.max_running" in _faults([*_GPU, "rollout.max_running=256", f"{tokens}=255"])
    episode = ["dataset.max_prompt_tokens=4096", "rollout.max_response_tokens=4097"]
    chunks = "verl.actor_rollout_ref.rollout.enable_chunked_prefill"
    assert not _faults([*_GPU, many, *episode, f"{chunks}=false"]), "VeRL raises it to the longest episode"
    assert "rollout.max_running" in _faults([*_GPU, many, *episode, f"{chunks}=true"])


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("verl.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", "true", "false"),
    ],
)
def test_raw_keys_that_verl_refuses_when_the_trainer_is_built(key: str, value: str, other: str) -> None:
    fixed = [*_GPU, "trainer.dynamic_batches=false"]
    refused = _faults([*fixed, f"{key}={value}"])
    assert list(refused) == [key]
    assert not _faults([*fixed, f"{key}={other}"])


def test_sequences_with_padding_are_not_divided() -> None:
    padded = "verl.actor_rollout_ref.model.use_remove_padding"
    assert list(_faults([*_shared(4), f"{padded}=false"])) == [padded]
    assert not _faults([*_GPU, f"{padded}=false"])


@pytest.mark.parametrize(("kv_heads", "fits"), [(3, False), (2, True), (6, True), (12, True)])
def test_an_engine_s_gpus_share_key_and_value_heads(tmp_path: Path, kv_heads: int, fits: bool) -> None:
    config = {"num_attention_heads": 12, "num_key_value_heads": kv_heads, "max_position_embeddings": 1 << 20}
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = ["cluster.gpus_per_node=2", "rollout.tensor_parallel=2", "trainer.sequence_parallel=1"]
    recipe = recipes.load("base/gpu-1", [*_BATCH, *sizes, "trainer.batch_size=2", f"model.path={tmp_path}"])
    assert [".".join(key) for key, _ in model_faults(recipe)] == ([] if fits else ["rollout.tensor_parallel"])


@pytest.mark.parametrize("tied", [True, False, None])
def test_probabilities_are_computed_by_parts_where_verl_can(tied: bool | None, tmp_path: Path) -> None:
    config = {} if tied is None else {"tie_word_embeddings": tied}
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = recipes.load("base/gpu-1", [f"model.path={tmp_path}"])
    assert own_keys(recipe, tmp_path).get(FUSED) is (True if tied else None)
    forced = recipes.load("base/gpu-1", [f"model.path={tmp_path}", f"verl.{FUSED}=true"])
    faults = [text for key, text in model_faults(forced) if key[-1] == "use_fused_kernels"]
    assert bool(faults) is (tied is False)


_ASYNC = [
    "rollout.engine=transformers",
    "algorithm.rollout_correction=off",
    "trainer.mode=separate_async",
    "trainer.batch_size=8",
]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["rollout.engine=vllm"], "trainer.mode"),
        (["cluster.launcher=slurm"], "trainer.mode"),
        (["trainer.async.warmup_batches=2"], "trainer.async.warmup_batches"),
        (["trainer.async.sync_every=2"], "trainer.async.sync_every"),
        (["trainer.minibatch_size=4"], "trainer.async.sync_every"),
        (["trainer.mode=colocate_async", "trainer.async.sync_every=2"], "trainer.async.sync_every"),
        (["algorithm.rollout_correction=token"], "algorithm.rollout_correction"),
    ],
)
def test_what_an_asynchronous_mode_cannot_do_is_refused(overrides: list[str], key: str) -> None:
    assert key in _faults([*_ASYNC, *overrides])


def test_updates_between_deliveries_are_parts_of_a_batch() -> None:
    sizes = ["trainer.async.sync_every=2", "trainer.minibatch_size=4"]
    assert not _faults([*_ASYNC, *sizes])
    assert not _faults([*_ASYNC, "trainer.mode=colocate_async", "trainer.minibatch_size=4"])
