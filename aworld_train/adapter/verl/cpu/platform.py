"""The CPU as a VeRL platform.

VeRL's platform has a device module with the functions of ``torch.cuda``: on the CPU memory functions return zero, and
synchronisation does nothing. The machine declares *logical* GPUs to Ray, one per training rank, because VeRL places its
workers by that resource.
"""

import os
from contextlib import nullcontext
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_: object) -> None:
    """There is one device, no allocator's cache and no profiler, and nothing to wait for."""


def _memory(device: object = None) -> tuple[int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return memory.available, memory.total


class _CpuDeviceModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda device=None: "CPU")
    set_device = empty_cache = ipc_collect = reset_peak_memory_stats = staticmethod(_nothing)
    memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = staticmethod(
        lambda device=None: 0
    )
    mem_get_info = staticmethod(_memory)
    get_rng_state = staticmethod(lambda device=None: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=None: torch.set_rng_state(state))
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    _module = _CpuDeviceModule("aworld_train_cpu_device")

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: self._module)

    is_available = staticmethod(lambda: True)
    current_device = staticmethod(lambda: torch.device("cpu"))
    device_count = staticmethod(lambda: 1)
    set_device = synchronize = set_allocator_settings = empty_cache = staticmethod(_nothing)
    profiler_start = profiler_stop = cudart = staticmethod(_nothing)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = staticmethod(lambda device_index=0: (None, None))
    communication_backend_name = staticmethod(lambda: "gloo")
    visible_devices_envvar = staticmethod(lambda: "CUDA_VISIBLE_DEVICES")
    nvtx_range = staticmethod(nullcontext)
    ray_resource_name = staticmethod(lambda: "GPU")
    ray_noset_envvars = staticmethod(lambda: ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    is_ipc_supported = staticmethod(lambda: False)


def initialize_process_group(timeout_second: float | None = None, backend: str | None = None) -> None:
    """VeRL's ``initialize_global_process_group_ray`` with a backend string that torch accepts.

    VeRL 0.9.1 (``utils/distributed.py``) writes ``cpu:gloo,<device>:<backend>``; with the device ``cpu`` that names the
    device twice and torch refuses it. A test pinned to that version checks that VeRL still has this fault.
    """
    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        backend="cpu:gloo",
        rank=int(os.environ.get("RANK", 0)),
        world_size=int(os.environ.get("WORLD_SIZE", 1)),
        timeout=timedelta(seconds=timeout_second) if timeout_second is not None else None,
        init_method=os.environ.get("DIST_INIT_METHOD"),
    )
