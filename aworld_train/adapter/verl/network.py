"""The environment variables by which the libraries of training use the network that the nodes of a run share."""

import ipaddress
import os

import psutil

INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_LOOPBACK = "lo"


def network_variables(address: str) -> dict[str, str]:
    interface = _interface(address)
    return {"VLLM_HOST_IP": address, **(dict.fromkeys(INTERFACE_VARIABLES, interface) if interface else {})}


def chosen_interfaces() -> dict[str, str]:
    return {name: os.environ[name] for name in INTERFACE_VARIABLES if os.environ.get(name)}


def _interface(address: str) -> str | None:
    """The network interface with this address; None if the libraries have to choose one."""
    if ipaddress.ip_address(address).is_loopback:
        return _LOOPBACK
    for name, interface_addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in interface_addresses):
            return str(name)
    return None
