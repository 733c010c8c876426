"""Ports of this machine, and the tool environment that the run is pointed at."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.network import is_near

_SECONDS = 1.0
_MIN_PORTS = 1000
_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_ports(machine: Machine, needs: Needs) -> Iterator[Finding]:
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
    except OSError as error:
        yield fail(
            "ports",
            f"Nothing can listen on 127.0.0.1: {error.strerror}.",
            "Set the loopback interface up (ip link set lo up).",
        )
    yield from _outgoing(machine)
    url = needs.environment_url(machine)
    if not url:
        return
    if not is_near(url) and not needs.online:
        yield ok("ports", "The tool environment's address is public and was not asked (--online does).")
    elif (problem := connection_problem(url)) is not None:
        yield fault(
            "ports",
            needs.trains,
            f"No tool environment answers at {_place(url)}: {problem}.",
            "Start it (aworld-train env up), correct env.url or MCP_SERVER_URL, or name one in env.docker_dir.",
        )
    else:
        yield ok("ports", f"The tool environment at {_place(url)} takes connections.")


def connection_problem(url: str) -> str | None:
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0))
        socket.create_connection(address, timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def _place(url: str) -> str:
    """Host and port: the rest of a URL may hold a secret."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _outgoing(machine: Machine) -> Iterator[Finding]:
    bounds = machine.text("/proc/sys/net/ipv4/ip_local_port_range").split()
    if len(bounds) != 2:
        return
    count = int(bounds[1]) - int(bounds[0]) + 1
    waiting = re.search(r"^TCP:.* tw (\d+)", machine.text("/proc/net/sockstat"), re.MULTILINE)
    free = count - (int(waiting[1]) if waiting else 0)
    if free < _MIN_PORTS:
        yield warn(
            "ports",
            f"About {free} of {count} ports are left for connections (ip_local_port_range); Ray's processes and "
            "episodes take hundreds.",
            "sysctl -w net.ipv4.ip_local_port_range='32768 60999', and look for what opens so many.",
        )
    else:
        yield ok("ports", f"{free} ports are left for connections.")
