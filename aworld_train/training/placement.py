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
        address: The IP address of this machine on a network that it shares with ``nodes``, or with the nodes of a
            cluster that is there already; None if there are no others.
    """

    nodes: Nodes | None = None
    max_save_seconds: float = 600.0
    remark: str | None = None
    address: str | None = None

    @property
    def environment_host(self) -> str:
        """The address at which a tool environment that the run starts is reached by every node."""
        first = next(iter(self.nodes.addresses.values())) if self.nodes else self.address
        if first is None:
            return LOOPBACK
        return LOOPBACK if ipaddress.ip_address(first).is_loopback else first
