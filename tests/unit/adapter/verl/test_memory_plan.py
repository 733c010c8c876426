"""The plan of GPU memory against measured memory, and the ready recipes against the GPUs that they name."""

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import attention as attention_module
from aworld_train.adapter.verl.attention import FLASH, VARLEN
from aworld_train.adapter.verl.compose import own_keys
from aworld_train.adapter.verl.memory_plan import Shape, memory_plan, plan_of, shape_of
from aworld_train.doctor.gpu import SPARE
from tests.locations import REPOSITORY

MIB = 1 << 20
GPU_PAGE = REPOSITORY / "docs" / "how-to" / "gpu.md"
QWEN3: dict[str, Any] = {"head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936}
CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-0.6B": QWEN3
    | {"num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 3072},
    "Qwen/Qwen3-4B": QWEN3
    | {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "intermediate_size": 9728},
    "Qwen/Qwen3-8B": QWEN3
    | {"num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 12_288},
    "Qwen/Qwen3-32B": QWEN3
    | {"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64, "intermediate_size": 25_600},
    "Qwen/Qwen2.5-1.5B-Instruct": {
        "num_hidden_layers": 28,
        "hidden_size": 1536,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151_936,
    },
}
TIED = {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "Qwen/Qwen2.5-1.5B-Instruct"}
CARDS = {"24 GB": 24_564 * MIB, "80 GB": 81_559 * MIB}
"""As nvidia-smi lists an RTX 4090 and an H100."""
ON_GPUS = [
    "gsm8k-qwen2.5-1.5b-1gpu",
    "gaia/qwen3-4b-1gpu",
    "gaia/qwen3-8b-8gpu",
    "gaia/qwen3-32b-multinode",
]


def shape(model: str) -> Shape:
    found = shape_of(CONFIGS[model], is_tied=model in TIED)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-32B", 32_762_123_264),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
    ],
)
def test_parameters_are_those_of_the_models(model: str, parameters: int) -> None:
    assert shape(model).parameters == pytest.approx(parameters, rel=5e-4)


@pytest.mark.parametrize("name", ON_GPUS)
@pytest.mark.parametrize("attention", ["flash_attention_2", "torch_varlen"])
def test_a_ready_recipe_fits_the_gpus_that_it_names(name: str, attention: str) -> None:
    file = recipes.shipped()[name]
    (card,) = re.findall(
        r"for \w+(?: machines with eight)? GPUs? of (\d+ GB)", file.read_text().splitlines()[0]
    )
    recipe = recipes.load(name, [f"model.attention={attention}"])
    assert recipe.model.path is not None
    plan = plan_of(recipe, shape(recipe.model.path), CARDS[card])
    assert plan.total(plan.fullest) < (1 - SPARE) * CARDS[card], (plan.fullest, plan.phases[plan.fullest])


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_recipe_s_model_is_built_with_what_is_composed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On torch's meta device, which has shapes and no memory, and without flash-attn."""
    monkeypatch.setattr(attention_module, "find_spec", lambda package: None)
    recipe = recipes.load(name)
    assert recipe.model.path is not None
    keys = own_keys(recipe, tmp_path)
    for module in keys["actor_rollout_ref.model.external_lib"]:
        import_module(module)
    family = "qwen2" if "Qwen2.5" in recipe.model.path else "qwen3"
    config = AutoConfig.for_model(
        family, **CONFIGS[recipe.model.path], tie_word_embeddings=recipe.model.path in TIED
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, **keys["actor_rollout_ref.model.override_config"])
    assert model.config._attn_implementation == VARLEN
    assert model.num_parameters() == pytest.approx(shape(recipe.model.path).parameters, rel=5e-4)


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_documented_table_is_the_plan(name: str) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(name)}` .*$", GPU_PAGE.read_text("utf-8"), re.MULTILINE)
    _, gpus, longest, *documented = (cell.strip() for cell in row.strip("|").split("|"))
    recipe = recipes.load(name, [f"model.attention={FLASH}"])
    assert recipe.model.path is not None
    plan = plan_of(recipe, shape(recipe.model.path), CARDS[gpus.rpartition("x ")[2]])
    phases = ("load", "sample", "log-probability", "backward", "optimizer step", "transfer")
    assert [float(cell) for cell in documented] == [round(plan.total(phase) / 1e9, 1) for phase in phases]
    assert int(longest.replace(",", "")) == (
        recipe.dataset.max_prompt_tokens + recipe.rollout.max_response_tokens
    )


@pytest.mark.parametrize("model", CONFIGS)
def test_the_documented_number_of_gpus_is_the_fewest_by_the_plan(model: str) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(model)}` .*$", GPU_PAGE.read_text("utf-8"), re.MULTILINE)
    documented = [cell.strip() for cell in row.strip("|").split("|")][1:]
    computed = [fewest_gpus(model, rank, memory) for memory in CARDS.values() for rank in (0, 32)]
    assert documented == [str(number or "none") for number in computed]


def fewest_gpus(model: str, rank: int, memory: int) -> int | None:
    """Beside an engine that has room for its weights and two thirds as much besides."""
    sizes = [f"model.attention={FLASH}", f"model.lora.rank={rank}", "trainer.max_batch_tokens=8192"]
    sizes += ["dataset.max_prompt_tokens=4096", "rollout.max_response_tokens=4096", "trainer.batch_size=32"]
    sizes += ["agent.context.policy=off"]
    for gpus in (1, 2, 4, 8, 16, 32):
        nodes, each = max(1, gpus // 8), min(gpus, 8)
        cluster = [f"cluster.nodes={nodes}", f"cluster.gpus_per_node={each}", "cluster.launcher=slurm"]
        base = recipes.load("gaia/qwen3-4b-1gpu", [*sizes, *cluster[: 2 + (nodes > 1)]])
        for share, parallel in itertools.product((0.3, 0.4, 0.5), (1, 2, 4, 8)):
            rollout = replace(base.rollout, gpu_memory=share, tensor_parallel=parallel)
            plan = plan_of(replace(base, rollout=rollout), shape(model), memory)
            fits = plan.total(plan.fullest) < (1 - SPARE) * memory
            if parallel <= each and fits and 2 * plan.parameters / parallel < 0.6 * share * memory:
                return gpus
    return None


def test_gpus_that_share_a_longer_row_hold_as_much() -> None:
    longer = [
        "dataset.max_prompt_tokens=65536",
        "rollout.max_response_tokens=65536",
        "trainer.sequence_parallel=8",
        "trainer.max_batch_tokens=20480",
    ]
    base = recipes.load("gaia/qwen3-8b-8gpu", [f"model.attention={FLASH}"])
    shared = recipes.load("gaia/qwen3-8b-8gpu", [f"model.attention={FLASH}", *longer])
    plans = [plan_of(recipe, shape("Qwen/Qwen3-8B"), 0) for recipe in (base, shared)]
    assert plans[0] == plans[1]


# On one H100 with VeRL 0.9.1, torch 2.11 and sdpa: MiB that nvidia-smi named twice a second; no engine was there. The
# first update has no moments yet before the optimizer's step, so that only the second has them on the way back.
MEASURED = {"load": 18_500, "log-probability": 20_560, "backward": 77_840, "optimizer step": 63_124}


@pytest.mark.parametrize("phase", MEASURED)
def test_the_plan_is_what_an_h100_held(phase: str) -> None:
    recipe = recipes.load(
        "gaia/qwen3-4b-1gpu",
        [
            "model.lora.rank=0",
            "trainer.offload=all",
            "agent.context.policy=off",
            "rollout.max_response_tokens=8192",
            "trainer.max_batch_tokens=24576",
            "model.attention=sdpa",
        ],
    )
    parts = plan_of(recipe, shape("Qwen/Qwen3-4B"), 0).phases[phase]
    planned = sum(size for part, size in parts.items() if part != "engine asleep")
    assert planned / MIB == pytest.approx(MEASURED[phase], rel=0.07)


LLAMA_7B = Shape(32, 4096, 4096, 4096, 11_008, 32_000, is_tied=False)
LLAMA_8B = Shape(32, 4096, 4096, 1024, 14_336, 128_256, is_tied=False)
QWEN3_1_7B = Shape(28, 2048, 2048, 1024, 6144, 151_936, is_tied=True)
LORA_64 = ("model.lora.rank=64",)
TITAN = "https://github.com/pytorch/torchtitan/pull"
QLORA = "https://github.com/AnswerDotAI/fsdp_qlora/blob/main/benchmarks_03_2024.md"
# Passes with checkpoints of all layers that others measured: the model, GPUs, tokens on each, bytes of a frozen
# parameter and of a logit in their loss, and what they read, in GiB. All keep fp32 where they train.
PUBLISHED = [
    ("Llama-7B", LLAMA_7B, 8, 16_384, 4, 10, (), (22.73, 31.02), f"{TITAN}/165: active and reserved"),
    ("Llama-8B", LLAMA_8B, 4, 4096, 4, 10, (), (44.84,), f"{TITAN}/1884: reserved"),
    (
        "Qwen3-1.7B",
        QWEN3_1_7B,
        2,
        8192,
        4,
        4,
        (),
        (19.99,),
        "torchtitan on two RTX 3090, compiled loss: reserved",
    ),
    (
        "Llama-7B, LoRA, 512",
        LLAMA_7B,
        2,
        512,
        2,
        10,
        LORA_64,
        (8.28, 10.24),
        f"{QLORA}: allocated and reserved",
    ),
    (
        "Llama-7B, LoRA, 2048",
        LLAMA_7B,
        2,
        2048,
        2,
        10,
        LORA_64,
        (9.16, 10.22),
        f"{QLORA}: allocated and reserved",
    ),
]


@pytest.mark.parametrize(
    ("model", "gpus", "tokens", "frozen", "logit", "more", "measured"),
    [row[1:8] for row in PUBLISHED],
    ids=[row[0] for row in PUBLISHED],
)
def test_the_plan_is_what_others_measured(
    model: Shape,
    gpus: int,
    tokens: int,
    frozen: int,
    logit: int,
    more: tuple[str, ...],
    measured: tuple[float, ...],
) -> None:
    """A tenth below what is allocated and a tenth above what is reserved for it at most."""
    sizes = [
        "dataset.max_prompt_tokens=100",
        "rollout.max_response_tokens=100",
        f"trainer.max_batch_tokens={tokens}",
    ]
    recipe = recipes.load(
        "base/gpu-1",
        [
            f"cluster.gpus_per_node={gpus}",
            f"trainer.batch_size={gpus}",
            *sizes,
            *more,
            "model.attention=flash_attention_2",
        ],
    )
    parts = dict(plan_of(recipe, model, 0).phases["backward"])
    for part in ("process", "engine asleep"):
        del parts[part]
    if more:
        parts["weights"] -= (4 - frozen) * model.parameters // gpus
    layer = parts.pop("one layer", 0)
    parts.pop("logits", 0)
    parts["largest"] = max(layer, logit * tokens * model.vocabulary)
    planned = sum(parts.values()) / 2**30
    assert 0.9 * measured[0] < planned < 1.1 * measured[-1]


@pytest.mark.parametrize(("tensor_parallel", "measured"), [(1, 14.96), (2, 7.48)])
def test_an_engine_loads_what_the_plan_sends_it(tensor_parallel: int, measured: float) -> None:
    """GiB of Llama-3-8B in vLLM (https://github.com/vllm-project/vllm/pull/10511)."""
    recipe = recipes.load(
        "base/gpu-1",
        ["cluster.gpus_per_node=2", "trainer.batch_size=2", f"rollout.tensor_parallel={tensor_parallel}"],
    )
    sent = plan_of(recipe, LLAMA_8B, 0).phases["transfer"]["engine"]
    assert sent / 2**30 == pytest.approx(measured, rel=0.005)


@pytest.mark.parametrize(
    ("offload", "stays", "away"),
    [
        ("none", {"weights", "moments"}, 0),
        ("params", {"moments"}, 4),
        ("optimizer", {"weights"}, 8),
        ("all", set(), 12),
    ],
)
def test_what_waits_in_the_machine_is_not_on_the_gpu_while_it_samples(
    offload: str, stays: set[str], away: int
) -> None:
    recipe = recipes.load("gaia/qwen3-32b-multinode", [f"trainer.offload={offload}", "model.attention=sdpa"])
    model = shape("Qwen/Qwen3-32B")
    plan = plan_of(recipe, model, 1000)
    assert set(plan.phases["sample"]) == {"process", "engine", *stays}
    assert plan.phases["sample"]["engine"] == 600
    assert {"weights", "moments", "gradients"} <= set(plan.phases["backward"]), "all come back"
    assert plan.phases["backward"]["moments"] == 8 * model.parameters // 32
    assert plan.waits == away * model.parameters // 4 and plan.copy == 4 * model.parameters


def test_adapters_leave_moments_and_gradients_for_themselves_alone() -> None:
    model = shape("Qwen/Qwen3-4B")
    backward, with_all = (
        plan_of(recipes.load("gaia/qwen3-4b-1gpu", ["model.attention=sdpa", *more]), model, 0).phases[
            "backward"
        ]
        for more in ([], ["model.lora.rank=0"])
    )
    adapters = model.adapter(32)
    assert 60e6 < adapters < 70e6
    assert backward["weights"] == 4 * (model.parameters + adapters), "the frozen ones are in fp32 too"
    assert backward["gradients"] == 4 * adapters and backward["moments"] == 8 * adapters
    assert with_all["one layer"] - backward["one layer"] == 6 * model.layer


def test_logits_are_whole_where_the_head_is_another_one() -> None:
    flash, whole = "model.attention=flash_attention_2", "model.attention=sdpa"
    untied, tied = (
        plan_of(recipes.load("gaia/qwen3-8b-8gpu", [flash]), shape(model), 0).phases["backward"]
        for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B")
    )
    assert untied["logits"] == 4 * 20_480 * 151_936 and "one layer" not in untied
    assert "logits" not in tied and tied["one layer"] > 0
    on_one = ["trainer.sequence_parallel=1", "trainer.max_batch_tokens=40960", whole]
    without = plan_of(recipes.load("gaia/qwen3-8b-8gpu", on_one), shape("Qwen/Qwen3-8B"), 0)
    assert without.phases["backward"]["logits"] == 4 * 40_960 * 151_936


@pytest.mark.parametrize(
    "config",
    [None, {"hidden_size": 4096}, CONFIGS["Qwen/Qwen3-8B"] | {"num_experts": 128}],
    ids=["none", "no sizes", "experts"],
)
def test_other_models_have_no_plan(config: dict[str, Any] | None) -> None:
    assert shape_of(config, is_tied=True) is None


def test_on_processors_there_is_no_plan() -> None:
    assert memory_plan(recipes.load("quickstart"), 0) is None


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "mistral"])
def test_hidden_states_and_one_layer_are_what_torch_holds(family: str) -> None:
    """In bf16 as on GPUs, by torch's own account of a pass forwards and backwards with checkpoints of layers."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tokens = 256

    def held(layers: int) -> int:
        config = AutoConfig.for_model(
            family,
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            vocab_size=64,
            tie_word_embeddings=True,
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        rows = torch.randint(0, 64, (1, tokens))

        def there_and_back() -> None:
            model.model(input_ids=rows, use_cache=False).last_hidden_state.sum().backward()

        there_and_back()  # gradients of one pass are there in the next
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            there_and_back()
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
        return sum(size for kind, size in peak.items() if getattr(kind, "name", "") in ("ACT", "TEMP"))

    model = Shape(6, 128, 128, 64, 512, 64, is_tied=True)
    of_layers = (held(6) - held(2)) / 4
    assert of_layers == pytest.approx(2 * tokens * model.hidden, rel=0.1)
    one_layer = held(2) - 2 * of_layers
    planned = tokens * (30 * model.hidden + 20 * model.query + 14 * model.key + 16 * model.ffn)
    assert 0.5 * planned < one_layer < 1.1 * planned


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ON_GPUS)
def test_the_plan_is_what_fake_tensors_take(name: str, tmp_path: Path) -> None:
    """Of the recipe's model with two and four layers, extended to all of them; docs/how-to/gpu.md has the figures."""
    recipe = recipes.load(name, [f"model.attention={VARLEN}"])
    path = recipe.model.path
    assert path is not None
    family = {"model_type": "qwen2" if "Qwen2.5" in path else "qwen3", "tie_word_embeddings": path in TIED}
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[path] | family))
    given = [name, str(tmp_path / "config.json"), f"model.attention={VARLEN}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake_update", *given],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    few, more = json.loads(done.stdout.splitlines()[-1]).values()
    plan = plan_of(recipe, shape(path), 0)
    (row,) = re.findall(
        rf"^\| by fake tensors: `{re.escape(name)}` .*$", GPU_PAGE.read_text("utf-8"), re.MULTILINE
    )
    documented = [float(cell) for cell in re.findall(r" ([\d.]+) \(", row)]
    for number, phase in enumerate(few):
        taken = few[phase] + (more[phase] - few[phase]) / 2 * (shape(path).layers - 2)
        unseen = sum(plan.phases[phase].get(part, 0) for part in ("process", "engine asleep", "fragments"))
        if phase == "log-probability" and "logits" in plan.phases[phase] and path not in TIED:
            unseen += plan.phases[phase]["logits"] // 2  # for the entropy
        planned = plan.total(phase) - unseen
        assert planned == pytest.approx(taken, rel=0.07), (phase, planned / 1e9, taken / 1e9)
        assert documented[number] == pytest.approx(taken / 1e9, abs=0.06), phase
