"""Addresses and ports of this machine: which to listen on, which others can reach, which are free."""

import errno
import ipaddress
import random
import socket
from pathlib import Path

from aworld_train.errors import EnvironmentFailure, UsageError

_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 50


def machine() -> str:
    return socket.gethostname()


def listen_address(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UsageError(f"--host {host!r} is not an address: {error.strerror}.") from error


def public_address(listening: str) -> str:
    """The address for others of a server that listens on ``listening``; for the wildcard, the default route's."""
    if not ipaddress.ip_address(listening).is_unspecified:
        return listening
    version = ipaddress.ip_address(listening).version
    # An address from the documentation range: connecting a datagram socket chooses a route and sends nothing.
    family, remote = (socket.AF_INET, "192.0.2.1") if version == 4 else (socket.AF_INET6, "2001:db8::1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((remote, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1" if version == 4 else "::1"


def free_port(address: str) -> int:
    """A port that nothing listens on at this moment.

    If possible it is above those of outgoing connections, one of which would take it while a server starts again.
    """
    for port in _ports_above_outgoing():
        if is_free(address, port):
            return port
    return check_free(address, 0)


def is_free(address: str, port: int) -> bool:
    try:
        check_free(address, port)
    except EnvironmentFailure:
        return False
    return True


def url(ip: str, port: int, path: str) -> str:
    return f"http://{f'[{ip}]' if ':' in ip else ip}:{port}{path}"


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(listen_address(host)).is_loopback


def _ports_above_outgoing() -> list[int]:
    """Some of them, in random order: those who choose at the same time seldom choose the same."""
    try:
        _, last = map(int, _OUTGOING_PORTS.read_text().split())
    except (OSError, ValueError):
        return []
    ports = range(last + 1, 1 << 16)
    return random.sample(ports, min(_TRIES, len(ports)))


def check_free(address: str, port: int) -> int:
    """Check that a program can listen on a port; returns it, and one that is free for 0."""
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is not a port: it is a number up to 65535, or 0 for any that is free.")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        # As the servers themselves do: connections that have just ended do not occupy the port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise EnvironmentFailure(
                    f"Port {port} on {address} is in use by another program; choose another one with --port, "
                    "or --port 0 for any that is free."
                ) from error
            raise UsageError(f"Cannot listen on {address} port {port}: {error.strerror}.") from error
        return int(server.getsockname()[1])
