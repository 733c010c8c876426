"""Libraries use the network interface of a node's address, and one that the user names."""

from types import SimpleNamespace

import pytest

from aworld_train.adapter.verl.ray_nodes import chosen_interfaces, network_variables


@pytest.mark.parametrize(
    ("address", "interface"),
    [("127.0.0.3", "lo"), ("10.0.0.2", "ib0"), ("fe80::2", "ib0"), ("10.0.0.9", None)],
)
def test_the_interface_is_that_with_the_address(
    monkeypatch: pytest.MonkeyPatch, address: str, interface: str | None
) -> None:
    found = {"eth0": ["10.0.0.1"], "ib0": ["10.0.0.2", "fe80::2"]}
    entries = {name: [SimpleNamespace(address=one) for one in addresses] for name, addresses in found.items()}
    monkeypatch.setattr("psutil.net_if_addrs", lambda: entries)
    interfaces = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    assert network_variables(address) == {"VLLM_HOST_IP": address, **interfaces}


def test_only_an_interface_that_is_named_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert chosen_interfaces() == {"NCCL_SOCKET_IFNAME": "ib0"}
