"""VeRL finds the CPU platform and everything it asks of it; what is worked around is pinned to VeRL 0.9.1.

VeRL picks its platform once per process, so it is asked in a process of its own.
"""

import ast
import importlib.metadata
import importlib.util
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from aworld_train.adapter.verl.cpu.platform import CpuPlatform, initialize_process_group
from tests import warm

PLATFORM = "aworld_train.adapter.verl.cpu.platform"
SOURCES = Path(importlib.util.find_spec("verl").submodule_search_locations[0])


def in_verl(program: str, **variables: str) -> Any:
    """Run ``program`` as a process of VeRL on the CPU platform; what it prints last, read as JSON."""
    environment = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": PLATFORM,
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    done = warm.run("-c", program, env=environment, timeout=200, kind=warm.LIBRARIES)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def names_asked_of_the_device_module() -> set[str]:
    """Every ``name`` in ``get_torch_device().name`` in VeRL, also by way of a variable."""
    names: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text("utf-8")
        if "get_torch_device" not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                continue
            nodes = list(ast.walk(function)) if not isinstance(function, ast.Module) else []
            variables = {
                target.id
                for node in nodes
                if isinstance(node, ast.Assign) and _is_device_module(node.value)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            names |= {
                node.attr
                for node in nodes
                if isinstance(node, ast.Attribute)
                and (
                    _is_device_module(node.value)
                    or (isinstance(node.value, ast.Name) and node.value.id in variables)
                )
            }
    return names


def _is_device_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "get_torch_device"


# Asked only where `is_available` said yes, or by functions that nothing in VeRL calls.
NEVER_ASKED = {
    "get_device_properties",
    "memory",
    "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction",
}

FACTS = """
import json, torch
from verl.plugin.platform import get_platform
from verl.utils import device as questions, memory_utils
from verl.utils.profiler.performance import _get_current_mem_info

platform, device = get_platform(), questions.get_torch_device()
state = device.get_rng_state()
first = torch.rand(1).item()
device.set_rng_state(state)
free, total = device.mem_get_info()
memory_utils.aggressive_empty_cache()
memory_utils.reset_memory_stats()
memory_utils.enable_memory_visualize()
memory_utils.clear_memory_history()
device.synchronize(), device.set_device(0), device.empty_cache(), device.ipc_collect()
with platform.nvtx_range("x"):
    platform.synchronize(), platform.empty_cache(), platform.set_device(0)
    platform.profiler_start(), platform.profiler_stop()
facts = {
    "platform": [type(platform).__module__, platform.is_available(), platform.device_count()],
    "device": [questions.get_device_name(), str(questions.get_device_id()), device.is_available()],
    "backend": [questions.get_nccl_backend(), platform.communication_backend_name()],
    "resource": questions.get_resource_name(),
    "ipc": platform.is_ipc_supported(),
    "state comes back": torch.rand(1).item() == first,
    "memory": [0 < free <= total, device.max_memory_allocated(), device.memory_reserved()],
    "memory report": [memory_utils.get_memory_info(), len(_get_current_mem_info())],
    "missing": [name for name in NAMES if not hasattr(device, name)],
}
"""


GROUP = """
import json, os, tempfile, torch
import verl.utils.distributed as distributed
facts = {}
os.environ["DIST_INIT_METHOD"] = "file://" + tempfile.mkdtemp() + "/rendezvous"
try:
    distributed.initialize_global_process_group_ray(timeout_second=30)
    number = torch.ones(1)
    torch.distributed.all_reduce(number)
    facts["group"] = [torch.distributed.get_world_size(), number.item()]
    distributed.initialize_global_process_group_ray()
    torch.distributed.destroy_process_group()
except ValueError as error:
    facts["refused"] = str(error)
"""
ASK_REGISTRIES = """
from verl.workers.engine import EngineRegistry
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import get_rollout_replica_class
facts["engine"] = EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__
facts["rollout"] = get_rollout_class("transformers", "async").__name__
facts["replica"] = get_rollout_replica_class("transformers").__name__
facts["workers call"] = workers.initialize_global_process_group_ray.__module__
"""
WORKERS = "import verl.workers.engine_workers as workers"
REGISTRATION = "import aworld_train.adapter.verl.cpu.registration"
IN_FORKS = """
def of_fork(program):
    reader, writer = os.pipe()
    if os.fork() == 0:
        scope = {}
        exec(program, scope)
        os.write(writer, json.dumps(scope["facts"]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        return json.loads(answer.read())

print(json.dumps([facts, *map(of_fork, PROGRAMS)]))
"""


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """Of one process that imports VeRL, and of forks of it that import more of it in two orders."""
    programs = (
        GROUP,
        # The order inside VeRL's workers, which import the registration when they build a model.
        f"{WORKERS}\n{REGISTRATION}{GROUP}{ASK_REGISTRIES}",
        f"{REGISTRATION}\n{WORKERS}\nfacts = workers.initialize_global_process_group_ray.__module__",
    )
    names = sorted(names_asked_of_the_device_module())
    made: list[dict[str, Any]] = in_verl(
        f"import os\nNAMES, PROGRAMS = {names}, {programs}\n{FACTS}{IN_FORKS}"
    )
    return made


@pytest.fixture
def facts(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return answers[0]


def test_this_is_the_verl_that_the_platform_was_written_for() -> None:
    assert importlib.metadata.version("verl") == "0.9.1"


def test_verl_finds_the_platform(facts: dict[str, Any]) -> None:
    assert facts["platform"] == [PLATFORM, True, 1]
    assert facts["device"] == ["cpu", "cpu", False]
    assert facts["backend"] == ["gloo", "gloo"]
    assert facts["resource"] == "GPU"
    assert facts["ipc"] is False


def test_verl_does_not_start_with_a_platform_module_that_fails() -> None:
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "aworld_train.no_such_module"}
    done = warm.run("-c", "import verl", env=environment, timeout=200, kind=warm.LIBRARIES)
    assert done.returncode != 0
    assert "aworld_train.no_such_module" in done.stderr


def test_the_device_module_has_every_name_that_verl_asks_of_it(facts: dict[str, Any]) -> None:
    asked = names_asked_of_the_device_module()
    assert {"empty_cache", "memory_allocated", "mem_get_info", "get_rng_state", "synchronize"} <= asked
    assert set(facts["missing"]) <= NEVER_ASKED


def test_what_is_said_never_to_be_called_is_not_called() -> None:
    functions = ("optimize_memory_for_inference", "optimize_memory_for_training")
    callers = [
        path.name
        for path in SOURCES.rglob("*.py")
        if path.name != "memory_utils.py" and any(name in path.read_text("utf-8") for name in functions)
    ]
    assert callers == []


def test_the_device_module_answers_what_verl_reports_and_restores(facts: dict[str, Any]) -> None:
    assert facts["state comes back"]
    assert facts["memory"] == [True, 0, 0]
    assert facts["memory report"] == [{}, 4]


def test_the_platform_is_one_cpu_without_what_only_gpus_have() -> None:
    platform = CpuPlatform()
    answers = [platform.is_available(), platform.device_count(), platform.current_device()]
    assert answers == [True, 1, torch.device("cpu")]
    assert platform.get_device_capability() == (None, None)
    assert (platform.cudart(), platform.visible_devices_envvar()) == (None, "CUDA_VISIBLE_DEVICES")
    assert platform.ray_noset_envvars() == ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]
    device = platform.device_module
    assert (device.device_count(), device.get_device_name()) == (1, "CPU")
    assert device.Stream is torch.cpu.Stream, "what VeRL's platform does not name is torch's"


def test_every_seed_is_that_of_torch_s_one_generator() -> None:
    platform = CpuPlatform()
    with torch.random.fork_rng():
        for seed in (platform.manual_seed, platform.manual_seed_all, platform.device_module.manual_seed):
            torch.manual_seed(1)
            seed(7)
            assert torch.initial_seed() == 7


@pytest.mark.parametrize(
    ("variables", "seconds", "expected"),
    [
        ({}, None, {"rank": 0, "world_size": 1, "timeout": None, "init_method": None}),
        (
            {"RANK": "2", "WORLD_SIZE": "4", "DIST_INIT_METHOD": "file:///rendezvous"},
            30.0,
            {
                "rank": 2,
                "world_size": 4,
                "timeout": timedelta(seconds=30),
                "init_method": "file:///rendezvous",
            },
        ),
    ],
)
def test_a_process_group_is_made_once_of_the_ranks_that_the_environment_names(
    variables: dict[str, str],
    seconds: float | None,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: list[dict[str, Any]] = []
    for name in ("RANK", "WORLD_SIZE", "DIST_INIT_METHOD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: bool(groups))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **options: groups.append(options))
    for _ in range(2):
        initialize_process_group(seconds)
    assert groups == [{"backend": "cpu:gloo", **expected}]


def test_verl_names_the_cpu_twice_and_torch_refuses_it(answers: list[dict[str, Any]]) -> None:
    # When this fails, `platform.initialize_process_group` is no longer needed.
    assert "cpu:gloo,cpu:gloo" in answers[1]["refused"]


def test_registration_makes_all_parts_known_and_process_groups_work(answers: list[dict[str, Any]]) -> None:
    assert answers[2] == {
        "group": [1, 1.0],
        "engine": "CpuFSDPEngine",
        "rollout": "TransformersRollout",
        "replica": "TransformersReplica",
        "workers call": PLATFORM,
    }


def test_workers_imported_after_the_registration_use_its_process_groups_too(
    answers: list[dict[str, Any]],
) -> None:
    assert answers[3] == PLATFORM
