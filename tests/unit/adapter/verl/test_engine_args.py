"""What a recipe passes to an engine is one of its arguments, of its type, and none that a run depends on."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.engine_args import (
    OWNED_ARGS,
    SGLANG_OWNED_ARGS,
    engine_arg_faults,
    engine_args,
    read_engine_args,
)
from aworld_train.recipe.schema import Engine
from aworld_train.recipe.tree import dotted, merge
from tests.aworld_environment import vllm_python
from tests.golden_recipes import READY

RAW = "verl.actor_rollout_ref.rollout.engine_kwargs.vllm"
GPU = {
    "model": {"path": "org/model"},
    "dataset": {"train": "t.parquet", "val": "v.parquet"},
    "rollout": {"engine": "vllm"},
    "cluster": {"device": "cuda"},
}
SOURCE = """
from dataclasses import dataclass, field

@dataclass
class EngineArgs:
    model: str = ModelConfig.model
    seed: int = 0
    max_num_seqs: int | None = None
    kv_cache_dtype: CacheDType = CacheConfig.cache_dtype
    swap_space: float = 4
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    async_scheduling: bool | None = None
    ignore_patterns: str | list[str] = field(default_factory=list)
    kv_cache_dtype_skip_layers: list[str] = field(default_factory=list)
    speculative_config: dict[str, Any] | None = None
    attention_config: AttentionConfig = None
    prefill: Literal["none", "all"] = "none"
    _api_process_count: int = 1

@dataclass
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False

class Other:
    not_an_argument: int = 0
"""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed vLLM as far as its arguments go."""
    package = tmp_path / "site" / "vllm"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('vLLM was imported')\n")
    (package / "engine" / "arg_utils.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(package.parent))
    return package


def faults(*overrides: str) -> dict[str, str]:
    return {dotted(key): text for key, text in engine_arg_faults(recipes.load(GPU, list(overrides)))}


@pytest.mark.parametrize("section", ["rollout.engine_args", RAW])
@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("kv_cache_dtyp=fp8", "Did you mean 'kv_cache_dtype'?"),
        ("kv-cache-dtype=fp8", "Did you mean 'kv_cache_dtype'?"),
        ("zzz=1", "`vllm serve --help=all` lists"),
        ("not_an_argument=1", "no argument"),
        ("_api_process_count=2", "no argument"),
        ("block_size=large", "takes a whole number or null, not 'large'"),
        ("block_size=true", "takes a whole number or null, not True"),
        ("swap_space=true", "takes a number, not True"),
        ("async_scheduling=1", "takes true or false or null, not 1"),
        ("kv_cache_dtype_skip_layers=a", "takes a list, not 'a'"),
        ("ignore_patterns=3", "takes text or a list, not 3"),
        ("attention_config=3", "takes text or a map, not 3"),
        ("prefill=3", "takes text, not 3"),
        ("max_num_seqs=8", "`rollout.max_running`"),
        ("seed=8", "`trainer.seed`"),
        ("enforce_eager=true", "`verl.actor_rollout_ref.rollout.enforce_eager`"),
        ("tensor-parallel-size=8", "`rollout.tensor_parallel`"),
        ("dtype=half", "`rollout.dtype`"),
        ("logprobs_mode=raw_logprobs", "with which tokens were sampled"),
        (
            "speculative_config={rejection_sample_method: synthetic}",
            "rejection_sample_method` cannot be synthetic",
        ),
        ('speculative_config=\'{"rejection_sample_method": "synthetic"}\'', "cannot be synthetic"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_helps(
    vllm: Path, section: str, argument: str, text: str
) -> None:
    refusals = faults(f"{section}.{argument}")
    assert list(refusals) == [f"{section}.{argument.partition('=')[0]}"]
    assert text in next(iter(refusals.values()))


@pytest.mark.parametrize(
    "argument",
    [
        "kv_cache_dtype=fp8",
        "swap_space=4",
        "swap_space=4.5",
        "num_gpu_blocks_override=null",
        "async_scheduling=false",
        "ignore_patterns=[a]",
        "ignore_patterns=a",
        "speculative_config={method: ngram}",
        "speculative_config={method: ngram, rejection_sample_method: block}",
        "attention_config={backend: x}",
        "enable_log_requests=true",
        "block_size=${oc.env:AWORLD_BLOCKS}",
    ],
)
def test_a_right_argument_is_passed_through(
    vllm: Path, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWORLD_BLOCKS", "16")
    override = f"rollout.engine_args.{argument}"
    assert faults(override) == {}
    recipe = recipes.load(GPU, [override])
    arguments = compose(recipe, tmp_path)["actor_rollout_ref"]["rollout"]["engine_kwargs"]["vllm"]
    name = argument.partition("=")[0]
    value: Any = recipe.rollout.engine_args[name]
    assert arguments == {name: "${oc.env:AWORLD_BLOCKS}" if "oc.env" in argument else value}


def test_without_vllm_only_arguments_that_are_owned_are_refused() -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    assert engine_args(Engine.vllm) is None
    assert list(faults("rollout.engine_args.any_thing=1", "rollout.engine_args.seed=1")) == [
        "rollout.engine_args.seed"
    ]


SGLANG_SOURCE = """
@dataclasses.dataclass
class ServerArgs:
    model_path: str
    page_size: Optional[int] = None
    attention_backend: Optional[str] = None
    cuda_graph_bs: Optional[List[int]] = None
    schedule_conservativeness: float = 1.0
    disable_radix_cache: bool = False
    forward_hooks: Optional[List[dict[str, Any]]] = None
    model_loader_extra_config: Union[str, Dict[str, Any]] = "{}"
"""


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("page_size=16", ""),
        ("page_size=null", ""),
        ("page_size=large", "takes a whole number or null, not 'large'"),
        ("cuda_graph_bs=[1, 2]", ""),
        ("cuda_graph_bs=1", "takes a list or null, not 1"),
        ("disable_radix_cache=1", "takes true or false, not 1"),
        ("model_loader_extra_config=1", ""),
        ("page_siz=16", "SGLang's engine has no argument 'page_siz'. Did you mean 'page_size'?"),
        ("zzz=1", "`python -m sglang.launch_server --help` lists"),
        ("model_path=x", "the engine has the model of `model.path`"),
        ("tp-size=2", "`rollout.tensor_parallel`"),
    ],
)
@pytest.mark.parametrize("section", ["rollout.engine_args", RAW.replace("vllm", "sglang")])
def test_sglang_gets_arguments_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, argument: str, text: str
) -> None:
    package = tmp_path / "site" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('SGLang was imported')\n")
    (package / "srt" / "server_args.py").write_text(SGLANG_SOURCE)
    monkeypatch.syspath_prepend(str(package.parent))
    found = faults("rollout.engine=sglang", f"{section}.{argument}")
    assert bool(found) is bool(text)
    assert text in found.get(f"{section}.{argument.partition('=')[0]}", "")


def test_the_engine_transformers_takes_none() -> None:
    recipe = recipes.load(
        merge(
            GPU,
            {
                "rollout": {"engine": "transformers", "engine_args": {"block_size": 16}},
                "cluster": {"device": "cpu"},
            },
        )
    )
    ((key, text),) = engine_arg_faults(recipe)
    assert dotted(key) == "rollout.engine_args" and "rollout.engine=vllm" in text


def test_a_recipe_s_argument_goes_over_what_a_cpu_needs(tmp_path: Path) -> None:
    recipe = recipes.load(GPU, ["cluster.device=cpu", "rollout.engine_args.kv_cache_memory_bytes=77"])
    arguments = compose(recipe, tmp_path)["actor_rollout_ref"]["rollout"]["engine_kwargs"]["vllm"]
    assert arguments["kv_cache_memory_bytes"] == 77 and "worker_extension_cls" in arguments


@pytest.mark.parametrize("source", [None, "class EngineArgs(", "class Other:\n    seed: int\n"])
def test_arguments_that_cannot_be_read_are_not_known(tmp_path: Path, source: str | None) -> None:
    if source is not None:
        (tmp_path / "arg_utils.py").write_text(source)
    assert read_engine_args(tmp_path / "arg_utils.py") is None


def test_every_argument_that_verl_sets_itself_is_owned() -> None:
    """VeRL 0.9.1 merges its own ``compilation_config`` with the recipe's and puts the others in its place."""
    merged = {"compilation_config", "speculative_config"}
    assert len(set_by_verl()) > 30
    assert sorted(set_by_verl() - merged - set(OWNED_ARGS)) == []


def test_every_argument_of_sglang_s_that_verl_sets_itself_is_owned() -> None:
    """The others are VeRL's choice of kernels, of what is logged and measured, and of a draft model."""
    chosen = {
        "attention_backend",
        "mm_attention_backend",
        "log_level",
        "skip_server_warmup",
        "enable_metrics",
    }
    speculative = {name for name in set_by_verl("sglang") if "speculative" in name or "draft" in name}
    disaggregated = {name for name in set_by_verl("sglang") if name.startswith("disaggregation")}
    assert len(set_by_verl("sglang")) > 30
    owned = chosen | speculative | disaggregated | set(SGLANG_OWNED_ARGS)
    assert sorted(set_by_verl("sglang") - owned) == []


def set_by_verl(engine: str = "vllm") -> set[str]:
    """The arguments that VeRL's server of an engine writes into ``args``, its parts, or what it updates them with."""
    spec = find_spec("verl")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "workers" / "rollout" / f"{engine}_rollout"
    source = folder / {"vllm": "vllm_async_server.py", "sglang": "async_sglang_server.py"}[engine]
    launch = next(
        node
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "launch_server"
    )
    maps = [
        node.value
        for node in ast.walk(launch)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("args", "dp_args", "lora_args")
    ]
    maps += [
        node.args[0]
        for node in ast.walk(launch)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "args.update"
    ]
    keys = [key for each in maps if isinstance(each, ast.Dict) for key in each.keys]
    keys += [
        node.slice
        for node in ast.walk(launch)
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) in ("args", "lora_args", "engine_kwargs")
    ]
    return {key.value for key in keys if isinstance(key, ast.Constant)}


@pytest.fixture(scope="module")
def real_arguments() -> dict[str, frozenset[str]]:
    python = vllm_python()
    (source,) = python.parents[1].glob("lib/python*/site-packages/vllm/engine/arg_utils.py")
    arguments = read_engine_args(source)
    assert arguments is not None
    return dict(arguments)


@pytest.mark.vllm
def test_what_a_recipe_may_not_set_are_arguments_of_the_real_vllm(
    real_arguments: dict[str, frozenset[str]],
) -> None:
    assert len(real_arguments) > 150
    assert sorted(set(OWNED_ARGS) - set(real_arguments)) == []
    assert sorted(set_by_verl() - set(real_arguments)) == []
    assert real_arguments["kv_cache_memory_bytes"] == {"int", "null"}
    assert real_arguments["speculative_config"] == {"map", "str", "null"}
    assert real_arguments["enable_log_requests"] == {"bool"}


@pytest.mark.vllm
@pytest.mark.parametrize("name", READY)
def test_ready_recipes_pass_the_real_vllm_arguments_that_it_has(
    name: str, real_arguments: dict[str, frozenset[str]], tmp_path: Path
) -> None:
    recipe = recipes.load(recipes.shipped()[name], ["rollout.engine=vllm"])
    composed = compose(recipe, tmp_path)["actor_rollout_ref"]["rollout"]["engine_kwargs"]
    assert set(composed.get("vllm") or {}) <= set(real_arguments)
