"""Where a run runs, as far as training has to know; a launcher says it."""

import ipaddress
from dataclasses import dataclass

from aworld_train.adapter.base import Nodes

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Placement:
    """The place of a run.

    Attributes:
        nodes: The machines of a recipe whose launcher is not ``local``; None is this one.
        max_save_seconds: Seconds that a run may take to save and stop after SIGUSR1.
        remark: What the user should know about the place, in the terminal and the summary.
    """

    nodes: Nodes | None = None
    max_save_seconds: float = 600.0
    remark: str | None = None

    @property
    def environment_host(self) -> str:
        """The address at which a tool environment that the run starts is reached by every node."""
        if self.nodes is None:
            return LOOPBACK
        first = next(iter(self.nodes.addresses.values()))
        return LOOPBACK if ipaddress.ip_address(first).is_loopback else first
