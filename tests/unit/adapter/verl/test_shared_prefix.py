"""VeRL's loss of rows that share prefixes, and its gradients, are what they are row by row, however passes are cut."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")

import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.utils.losses import ppo_loss

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import trie_attention
from aworld_train.adapter.verl.attention import TORCH, TRIE, VARLEN_FAMILIES
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.cpu.engine import CpuFSDPEngine
from aworld_train.adapter.verl.shared_prefix import SharedPrefixEngine
from aworld_train.adapter.verl.token_trie import Row, token_trie
from tests.properties import examples
from tests.token_rows import rows_with_branches
from tests.unit.adapter.verl.test_attention import tiny

GROUP_OF_EIGHT = [
    np.array([1, 2, 3, 4, *[5 + number] * length]) for number, length in enumerate((1, 4, 2, 4, 7, 3, 1, 2))
]
BRANCHES = [np.array(row) for row in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8], [1, 2, 3, 7, 9, 9], [1, 2, 3])]
APART = [np.array([first, 1, 2]) for first in range(4)]
IDENTICAL = [np.array([1, 2, 3, 4])] * 3


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("gloo") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # a run has the platform `cpu`, which is chosen as VeRL is imported
        for name in ("get_device_id", "get_device_name"):
            patch.setattr(transformer_impl, name, lambda: "cpu")
        yield
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """VeRL's, with every term that reads the model's output: the policy's, an entropy and a distance."""
    overrides = ["algorithm.entropy_coef=0.1", "algorithm.kl_coef=0.2"]
    composed: Any = OmegaConf.create(
        compose(recipes.load("quickstart", overrides), tmp_path_factory.mktemp("run"))
    )
    config = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    return lambda **arguments: ppo_loss(config, **arguments)


def engine_of(model: Any) -> Any:
    made: Any = object.__new__(CpuFSDPEngine)
    made.module, made.model_config = model, SimpleNamespace(hf_config=model.config)
    made.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
    made.ulysses_device_mesh, made.ulysses_sequence_parallel_size, made.use_ulysses_sp = None, 1, False
    made.pad_to_length, made._autocast_dtype = False, torch.float32
    made.compute_entropy_from_logits = entropy
    return made


def entropy(logits: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Categorical(logits=logits).entropy()


def batch_of(rows: list[Row], seed: int, **more: Any) -> Any:
    """As VeRL's trainer sends rows: prompts of at least one token, masks on what tools wrote, old probabilities."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.from_numpy(np.append(row, 0)) for row in rows]
    prompts = [int(torch.randint(1, len(row), (), generator=generator)) for row in ids]
    answers = [row[prompt:] for row, prompt in zip(ids, prompts, strict=True)]
    masks = [torch.randint(2, (len(answer),), generator=generator) for answer in answers]
    masks[0][:] = 1

    def normal(scale: float, offset: float = 0.0) -> list[torch.Tensor]:
        return [offset + scale * torch.randn(len(answer), generator=generator) for answer in answers]

    columns = {
        "input_ids": ids,
        "position_ids": [torch.arange(len(row)) for row in ids],
        "prompts": [row[:prompt] for row, prompt in zip(ids, prompts, strict=True)],
        "responses": answers,
        "response_mask": masks,
        "loss_mask": [
            torch.cat([mask.new_zeros(prompt), mask]) for mask, prompt in zip(masks, prompts, strict=True)
        ],
        "attention_mask": [torch.ones_like(row) for row in ids],
        "advantages": normal(1.0),
        "old_log_probs": normal(0.1, -4.0),
        "ref_log_prob": normal(0.1, -4.0),
    }
    nested = {
        name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()
    }
    settings = {"temperature": 0.8, "calculate_entropy": True, "global_batch_size": len(rows), **more}
    return tu.get_tensordict(nested, {"use_remove_padding": False, **settings})


def trained(engine: Any, batch: Any, loss: Any) -> tuple[float, torch.Tensor, dict[str, Any]]:
    engine.module.zero_grad()
    output = engine.forward_backward_batch(batch, loss)
    gradients = [parameter.grad.flatten() for parameter in engine.module.parameters()]
    return sum(output["loss"]), torch.cat(gradients), output["metrics"]


ROW_BY_ROW = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1}


def assert_same(
    rows: list[Row], loss: Any, seed: int = 0, family: str = "qwen3", **limits: Any
) -> dict[str, Any]:
    window = {"sliding_window": None} if family == "mistral" else {}
    sharing, plain = (engine_of(tiny(family, attention=name, **window)) for name in (TRIE, TORCH))
    value, gradients, metrics = trained(sharing, batch_of(rows, seed, **limits), loss)
    expected_value, expected_gradients, expected_metrics = trained(
        plain, batch_of(rows, seed, **ROW_BY_ROW), loss
    )
    assert value == pytest.approx(expected_value, abs=1e-5)
    assert torch.allclose(gradients, expected_gradients, atol=1e-5)
    with torch.no_grad():
        known, expected = (
            engine.forward_backward_batch(batch_of(rows, seed, **how), None, forward_only=True)[
                "model_output"
            ]
            for engine, how in ((sharing, limits), (plain, ROW_BY_ROW))
        )
    for name in ("log_probs", "entropy"):
        for row, expected_row in zip(known[name].unbind(), expected[name].unbind(), strict=True):
            assert torch.allclose(row[:-1], expected_row[:-1], atol=1e-5), name
    assert set(metrics) - set(expected_metrics) == {"forwarded_tokens", "saved_tokens"}
    return metrics


@examples(40)
@given(
    rows=rows_with_branches(max_rows=8),
    seed=st.integers(0, 1000),
    size=st.integers(1, 40),
    by_tokens=st.booleans(),
)
def test_loss_and_gradients_of_random_tries_are_those_of_their_rows(
    rows: list[Row], seed: int, size: int, by_tokens: bool, loss: Any
) -> None:
    key = "max_token_len_per_gpu" if by_tokens else "micro_batch_size_per_gpu"
    assert_same(rows, loss, seed, use_dynamic_bsz=by_tokens, **{key: size})


@pytest.mark.parametrize("family", VARLEN_FAMILIES)
@pytest.mark.parametrize(
    ("rows", "unique"),
    [(GROUP_OF_EIGHT, 4 + 24 + 8), (BRANCHES, 7 + 3 + 3 + 1), (APART, 4 * 4), (IDENTICAL, 5)],
    ids=["group", "branches", "apart", "identical"],
)
def test_one_pass_forwards_each_unique_token_once(
    family: str, rows: list[Row], unique: int, loss: Any
) -> None:
    metrics = assert_same(
        rows, loss, family=family, use_dynamic_bsz=False, micro_batch_size_per_gpu=len(rows)
    )
    assert metrics["forwarded_tokens"].aggregate() == unique
    assert metrics["saved_tokens"].aggregate() == sum(len(row) + 1 for row in rows) - unique


def test_a_long_segment_is_compared_some_queries_at_a_time(
    monkeypatch: pytest.MonkeyPatch, loss: Any
) -> None:
    monkeypatch.setattr(trie_attention, "_QUERIES", 3)
    masks: list[Any] = []
    attend = trie_attention.scaled_dot_product_attention

    def noting(*states: Any, attn_mask: Any = None, **more: Any) -> Any:
        masks.append(None if attn_mask is None else tuple(attn_mask.shape))
        return attend(*states, attn_mask=attn_mask, **more)

    monkeypatch.setattr(trie_attention, "scaled_dot_product_attention", noting)
    rows = [np.array([1, 2, *range(3, 11)]), np.array([1, 2, 4])]
    assert_same(rows, loss, use_dynamic_bsz=False, micro_batch_size_per_gpu=2)
    assert set(masks) == {None, (3, 5), (3, 8), (3, 11), (2, 4)}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sliding_window": 8}, "has no sliding_window"),
        ({"dropout": 0.1}, "has no dropout"),
        ({"attention_mask": torch.ones(1)}, "has no padding"),
        ({"trie": None}, "needs a trie"),
    ],
)
def test_what_a_trie_would_compute_wrongly_is_refused(settings: dict[str, Any], named: str) -> None:
    states = torch.zeros(1, 2, 2, 4)
    known = {"attention_mask": None, "trie": token_trie([np.array([1, 2])]), "dropout": 0.0}
    module = torch.nn.Identity()

    def attend(**more: Any) -> torch.Tensor:
        return trie_attention.trie_attention(module, states, states, states, **(known | more))[0]

    assert attend().shape == states.shape
    with pytest.raises(ValueError, match=f"{named}.*Set trainer.shared_prefix=false"):
        attend(**settings)


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_on_gpus_verl_takes_the_engine_that_can_share(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cuda")
    monkeypatch.setenv("VERL_ENGINE_VENDOR", "nvidia")
    assert EngineRegistry.get_engine_cls("language_model", backend) is SharedPrefixEngine
