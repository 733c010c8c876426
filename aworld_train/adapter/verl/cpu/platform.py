"""The CPU as a VeRL platform.

VeRL's platform has a device module with the functions of ``torch.cuda``: on the CPU memory functions return zero, and
synchronisation does nothing. The machine declares *logical* GPUs to Ray, one per training rank, because VeRL places its
workers by that resource.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _CpuDeviceModule(ModuleType):
    """``torch.cpu`` with the functions that VeRL calls on an accelerator's module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def get_device_name(device: object = None) -> str:
        return "CPU"

    @staticmethod
    def set_device(device: object) -> None:
        return None

    @staticmethod
    def empty_cache() -> None:
        return None

    @staticmethod
    def ipc_collect() -> None:
        return None

    @staticmethod
    def memory_allocated(device: object = None) -> int:
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

    @staticmethod
    def reset_peak_memory_stats(device: object = None) -> None:
        return None

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    _module = _CpuDeviceModule("aworld_train_cpu_device")

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: self._module)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one device."""
        return

    def synchronize(self, device_index: int | None = None) -> None:
        return

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return

    def empty_cache(self) -> None:
        return

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return

    def profiler_stop(self) -> None:
        return

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def initialize_process_group(timeout_second: float | None = None, backend: str | None = None) -> None:
    """VeRL's ``initialize_global_process_group_ray`` with a backend string that torch accepts.

    VeRL 0.9.1 (``utils/distributed.py``) writes ``cpu:gloo,<device>:<backend>``; with the device ``cpu`` that names the
    device twice and torch refuses it. A test pinned to that version checks that VeRL still has this fault.
    """
    import os

    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        backend="cpu:gloo",
        rank=int(os.environ.get("RANK", 0)),
        world_size=int(os.environ.get("WORLD_SIZE", 1)),
        timeout=timedelta(seconds=timeout_second) if timeout_second is not None else None,
        init_method=os.environ.get("DIST_INIT_METHOD"),
    )
