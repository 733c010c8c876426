"""Where a run runs, as far as training has to know."""

import ipaddress
import os
from dataclasses import dataclass

from aworld_train.adapter.base import Nodes
from aworld_train.errors import UsageError
from aworld_train.recipe.device import device_of, gpus_of_machine, on_cpu
from aworld_train.recipe.schema import Recipe

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Placement:
    nodes: Nodes | None = None  # None is this machine
    max_save_seconds: float = 600.0  # that a run may take to save and stop after SIGUSR1
    remark: str | None = None  # for the terminal and the summary
    address: str | None = None  # of this machine, on a network that it shares with other nodes

    @property
    def is_this_machine(self) -> bool:
        return self.nodes is None and self.address is None

    @property
    def environment_host(self) -> str:
        """The address at which every node reaches a tool environment that the run starts."""
        first = next(iter(self.nodes.addresses.values())) if self.nodes else self.address
        if first is None:
            return LOOPBACK
        return LOOPBACK if ipaddress.ip_address(first).is_loopback else first


def check_gpus(recipe: Recipe) -> None:
    if on_cpu(recipe):
        return
    device, needed = device_of(recipe), recipe.gpus_of_machine
    available = gpus_of_machine(device)
    if available is None or available >= needed:
        return
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    keys = "cluster.gpus_per_node" + (" and distill.gpus" if recipe.teacher else "")
    raise UsageError(
        f"The run takes {needed} GPUs ({keys}) and this machine has {available} for it"
        + (f", by CUDA_VISIBLE_DEVICES={chosen!r}" if chosen is not None else "")
        + f" (cluster.device is {device.value}). Set cluster.gpus_per_node to what there is, run it where there are "
        "more (--launcher slurm, ray or kubernetes), or take a recipe for processors (aworld-train recipe list)."
    )
