"""The GPUs that the driver lists, beside torch's CUDA and the recipe's demand."""

from collections.abc import Iterator
from dataclasses import dataclass

from aworld_train.doctor.estimate import gigabytes
from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.gpu_memory import check_gpu_memory
from aworld_train.doctor.machine import CommandFailed, Machine
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.wheels import cuda_of_torch

_MAX_USED = 0.1
_MIB = 1 << 20
# https://docs.nvidia.com/deploy/cuda-compatibility: the oldest driver for a major version of CUDA.
_OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class _Gpu:
    index: str
    identifier: str
    name: str
    total: int
    used: int
    driver: str


def check_gpus(machine: Machine, needs: Needs) -> Iterator[Finding]:
    if machine.program("nvidia-smi") is None:
        yield _no_driver(machine, needs)
        yield from check_gpu_memory(machine, needs, 0)
        return
    try:
        gpus = _visible(machine, _query(machine))
    except CommandFailed as error:
        yield fault(
            "gpu",
            needs.gpus > 0,
            f"The GPU driver does not answer: {error}.",
            "Load or reinstall the NVIDIA driver (a new kernel needs it built again), or restart the machine.",
        )
        return
    names = ", ".join(sorted({f"{gpu.name} of {gigabytes(gpu.total)}" for gpu in gpus})) or "none"
    chosen = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if len(gpus) < needs.gpus:
        yield fault(
            "gpu",
            True,
            f"The recipe needs {needs.gpus} GPUs and {len(gpus)} can be used ({names})"
            + (f"; CUDA_VISIBLE_DEVICES is {chosen!r}." if chosen is not None else "."),
            "Set cluster.gpus_per_node to what there is, or CUDA_VISIBLE_DEVICES to more of them.",
        )
    else:
        yield ok("gpu", f"{len(gpus)} GPUs: {names}.")
    yield from _torch(machine, needs, gpus)
    yield from _in_use(gpus)
    yield from check_gpu_memory(machine, needs, min((gpu.total for gpu in gpus), default=0))
    yield from _interface(machine, needs)


def _no_driver(machine: Machine, needs: Needs) -> Finding:
    devices = [*machine.path("/dev").glob("nvidia[0-9]*")]
    if not needs.gpus and not devices:
        return ok("gpu", "No GPU; the engine `transformers` trains on processors.")
    reason = "there are GPU devices, but no nvidia-smi" if devices else "there is no nvidia-smi"
    what = f"The recipe needs {needs.gpus} GPUs and {reason}." if needs.gpus else f"No driver: {reason}."
    remedy = (
        "Install the NVIDIA driver (in a container: start it with --gpus all), or take engine transformers."
    )
    return fault("gpu", needs.gpus > 0, what, remedy)


def _query(machine: Machine) -> list[_Gpu]:
    query = "--query-gpu=index,uuid,name,memory.total,memory.used,driver_version"
    gpus = []
    for line in machine.output("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == 6:
            total, used = (int(value) * _MIB if value.isdigit() else 0 for value in values[3:5])
            gpus.append(_Gpu(values[0], values[1], values[2], total, used, values[5]))
    return gpus


def _visible(machine: Machine, gpus: list[_Gpu]) -> list[_Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves; CUDA stops at the first entry that it does not know."""
    chosen = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    visible = []
    for entry in filter(None, (part.strip() for part in chosen.split(","))):
        # A part of a GPU (MIG) counts as one; which GPU it is a part of does not matter for that.
        is_part = entry.startswith("MIG-")
        match = [gpu for gpu in gpus if is_part or gpu.index == entry or gpu.identifier.startswith(entry)]
        if not match:
            break
        visible.append(match[0])
    return visible


def _torch(machine: Machine, needs: Needs, gpus: list[_Gpu]) -> Iterator[Finding]:
    cuda = cuda_of_torch(machine)
    if machine.version("torch") is None or not gpus:
        return
    if cuda is None:
        yield fault(
            "gpu",
            needs.gpus > 0,
            f"torch {machine.version('torch')} is a build without CUDA, so it uses no GPU.",
            "Install the profile gpu: pip install -c requirements/gpu.txt 'aworld-train[gpu]'",
        )
        return
    oldest = _OLDEST_DRIVERS.get(int(cuda.partition(".")[0]), 0)
    driver = gpus[0].driver
    major = driver.partition(".")[0]
    if major.isdigit() and int(major) < oldest:
        yield fault(
            "gpu",
            needs.gpus > 0,
            f"The driver {driver} is too old for CUDA {cuda}, for which torch is built: it takes {oldest} or newer.",
            "Update the NVIDIA driver, or install a torch for an older CUDA.",
        )


def _in_use(gpus: list[_Gpu]) -> Iterator[Finding]:
    used = [gpu for gpu in gpus if gpu.total and gpu.used > _MAX_USED * gpu.total]
    if used:
        states = ", ".join(f"{gpu.index} ({gigabytes(gpu.used)})" for gpu in used)
        yield warn(
            "gpu",
            f"Other processes use memory of GPU {states}.",
            "End them (nvidia-smi lists them), or leave these GPUs out with CUDA_VISIBLE_DEVICES.",
        )


def _interface(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """NCCL takes interfaces whose names begin with one of the list; ``=`` asks for the whole name, ``^`` for others."""
    chosen = machine.variable("NCCL_SOCKET_IFNAME")
    folder = machine.path("/sys/class/net")
    interfaces = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if not chosen or chosen.startswith("^") or not interfaces:
        return
    names = chosen.lstrip("=").split(",")
    is_there = [
        interface
        for interface in interfaces
        if any(interface == name if chosen.startswith("=") else interface.startswith(name) for name in names)
    ]
    if not is_there:
        yield fault(
            "gpu",
            needs.gpus > 0,
            f"NCCL_SOCKET_IFNAME is {chosen!r}, and this machine has no such interface.",
            f"Unset it, or take one of {', '.join(sorted(interfaces))}.",
        )
