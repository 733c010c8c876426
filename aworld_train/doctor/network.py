"""Ports of this machine, the tool environment that the run is pointed at, and the clocks of its servers.

Tokens of environments, TLS and ``make`` rely on clocks that agree.
"""

import re
import socket
import tempfile
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs, existing
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
            f"Nothing can listen on 127.0.0.1: {error.strerror}.",
            "Set the loopback interface up (ip link set lo up).",
        )
    yield from _outgoing(machine)
    url = needs.environment_url(machine)
    if not url:
        return
    if not is_near(url) and not needs.online:
        yield ok("The tool environment's address is public and was not asked (--online does).")
    elif (problem := connection_problem(url)) is not None:
        yield fault(
            needs.trains,
            f"No tool environment answers at {place_of(url)}: {problem}.",
            "Start it (aworld-train env up), correct env.url or MCP_SERVER_URL, or name one in env.docker_dir.",
        )
    else:
        yield ok(f"The tool environment at {place_of(url)} takes connections.")


def connection_problem(url: str) -> str | None:
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0))
        socket.create_connection(address, timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def place_of(url: str) -> str:
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
            f"About {free} of {count} ports are left for connections (ip_local_port_range); Ray's processes and "
            "episodes take hundreds.",
            "sysctl -w net.ipv4.ip_local_port_range='32768 60999', and look for what opens so many.",
        )
    else:
        yield ok(f"{free} ports are left for connections.")


_MAX_FILE_SKEW = 2.0
_MAX_SKEW = 30.0
_MAX_TOKEN_SKEW = 300.0
_ENVIRONMENT = "the tool environment"
_SYNCHRONISE = "Synchronise the clocks of both machines (timedatectl set-ntp true, chrony)."


def check_clock(machine: Machine, needs: Needs) -> Iterator[Finding]:
    folder = existing(needs.run_folder(machine))
    try:
        with tempfile.NamedTemporaryFile(prefix=".aworld-doctor-", dir=folder) as file:
            skew = Path(file.name).stat().st_mtime - time.time()
    except OSError:
        skew = 0.0  # `run folder` says so
    if abs(skew) > _MAX_FILE_SKEW:
        yield warn(f"Files in {folder} are dated {skew:+.0f} s from this clock.", _SYNCHRONISE)
    else:
        yield ok(f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}; files in {folder} agree.")
    for name, url in _named_servers(machine, needs).items():
        if is_near(url) or needs.online:
            yield from _server(name, url)


def _named_servers(machine: Machine, needs: Needs) -> dict[str, str]:
    servers = {_ENVIRONMENT: needs.environment_url(machine)}
    if needs.recipe is not None:
        servers |= {f"endpoints.{name}": str(each["url"]) for name, each in needs.recipe.endpoints.items()}
    return {name: url for name, url in servers.items() if url}


def _server(name: str, url: str) -> Iterator[Finding]:
    root = f"{urlsplit(url).scheme}://{place_of(url)}/"
    try:
        date = httpx.head(root, timeout=_SECONDS, trust_env=not is_near(url)).headers.get("Date")
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        yield warn(f"{name} does not answer at {root}: {reason}.", "Start it, or correct its address.")
        return
    skew = parsedate_to_datetime(date).timestamp() - time.time() if date else 0.0
    if abs(skew) > _MAX_SKEW:
        yield fault(
            name == _ENVIRONMENT and abs(skew) > _MAX_TOKEN_SKEW,
            f"The clock of {name} is {skew:+.0f} s from this one; tokens of environments are valid by the clock.",
            _SYNCHRONISE,
        )
    else:
        yield ok(f"The clock of {name} agrees.")
