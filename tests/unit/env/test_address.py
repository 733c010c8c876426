"""Addresses and ports: what is free is found, what is taken is named."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from aworld_train.env import address
from aworld_train.errors import EnvironmentFailure, UsageError


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not address.is_free("127.0.0.1", port)
        with pytest.raises(EnvironmentFailure, match=f"Port {port} on 127.0.0.1 is in use"):
            address.check_free("127.0.0.1", port)
    address.check_free("127.0.0.1", port)


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", address.free_port("127.0.0.1"))):
        pass


@pytest.mark.parametrize(
    ("outgoing", "lowest"),
    [
        pytest.param("32768\t60999\n", 61000, id="linux-default"),
        # One port is above these, and it is in use below.
        pytest.param("1024\t65534\n", 0, id="one-left"),
        pytest.param("1024\t65535\n", 0, id="none-left"),
        pytest.param("", 0, id="unknown"),
    ],
)
def test_a_free_port_is_above_those_of_outgoing_connections(
    outgoing: str, lowest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "ip_local_port_range"
    setting.write_text(outgoing)
    monkeypatch.setattr(address, "_OUTGOING_PORTS", setting)
    with socket.socket() as taken:
        with suppress(OSError):  # by another program, if not by this one
            taken.bind(("127.0.0.1", 65535))
            taken.listen()
        chosen = {address.free_port("127.0.0.1") for _ in range(20)}
    assert all(lowest <= port < 65535 for port in chosen)
    assert len(chosen) > 1


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="is not a port"):
        address.check_free("127.0.0.1", port)


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(UsageError, match=r"Cannot listen on 192\.0\.2\.77"):
        address.check_free("192.0.2.77", 0)


def test_a_host_name_is_resolved_and_an_unknown_one_refused() -> None:
    assert address.listen_address("localhost") in ("127.0.0.1", "::1")
    with pytest.raises(UsageError, match=r"no\.such\.host\.invalid"):
        address.listen_address("no.such.host.invalid")


def test_the_wildcard_is_told_to_others_as_a_real_address() -> None:
    assert address.public_address("127.0.0.1") == "127.0.0.1"
    assert address.public_address("0.0.0.0") not in ("0.0.0.0", "")


def test_an_ipv6_address_is_bracketed_in_a_url() -> None:
    assert address.url("::1", 80, "/mcp") == "http://[::1]:80/mcp"
    assert address.url("127.0.0.1", 80, "/mcp") == "http://127.0.0.1:80/mcp"
