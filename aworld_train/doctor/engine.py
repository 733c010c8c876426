"""The Docker engine, asked as ``env up`` asks it: whether it answers, and whether it has networks and space left."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aworld_train.doctor.disk import space_of
from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.hub import GB, gigabytes
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.env.containers import DEFAULT_SOCKET, engine_host, refuse_ssh
from aworld_train.errors import UsageError

_OLDEST = (20, 10)
_MIN_NETWORKS = 4
_MIN_IMAGES = 5 * GB
Network = ipaddress.IPv4Network
# https://docs.docker.com/engine/network/#automatic-subnet-allocation: base and prefix length of each network.
_DEFAULT_POOLS = (*((f"172.{number}.0.0/16", 16) for number in range(17, 32)), ("192.168.0.0/16", 20))


def check_engine(machine: Machine, needs: Needs) -> Iterator[Finding]:
    import docker

    if needs.processes:
        yield ok("The recipe runs its tools as processes and needs no Docker engine.")
        return
    try:
        refuse_ssh(host := engine_host(machine.environment))
    except UsageError as error:
        yield fault(needs.docker, error.message, "Use an engine of this machine.")
        return
    environment = machine.environment
    if host == DEFAULT_SOCKET:
        host = f"unix://{machine.path(DEFAULT_SOCKET)}"
        environment = {**environment, "DOCKER_HOST": host}
    try:
        client = docker.from_env(environment=environment, timeout=machine.command_seconds, version="auto")
        information = client.info()
        networks = client.networks.list()
    except Exception as error:  # of docker, requests, urllib3 and sockets, without a common class
        yield _no_engine(needs, host, error)
        return
    yield _version(information)
    yield from _networks(machine, needs, information, networks)
    if host.startswith("unix:"):
        yield from _images(machine, needs, information)


def _no_engine(needs: Needs, host: str, error: BaseException) -> Finding:
    while error.__context__ is not None:
        error = error.__context__
    reason = str(getattr(error, "strerror", None) or error)
    uses = needs.recipe is None or needs.directory is not None
    if not uses:
        return ok("No engine answers, and the recipe starts no tools in containers.")
    return fault(
        needs.docker,
        f"No Docker engine answers at {host}: {reason}.",
        "Start it, add your user to the group `docker`, or set DOCKER_HOST; tools that run no code can be processes "
        "(env.backend: process).",
    )


def _version(information: dict[str, Any]) -> Finding:
    version = str(information.get("ServerVersion", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < _OLDEST:
        return warn(f"Docker {version} is older than those that are tested.", "Update to 20.10 or newer.")
    return ok(f"Docker {version} answers.")


def _networks(
    machine: Machine, needs: Needs, information: dict[str, Any], networks: list[Any]
) -> Iterator[Finding]:
    """How many networks the engine can still make; each environment takes one."""
    used = [
        ipaddress.ip_network(config["Subnet"], strict=False)
        for network in networks
        for config in (network.attrs.get("IPAM", {}).get("Config") or [])
        if "Subnet" in config
    ]
    taken = [network for network in used if isinstance(network, Network)] + _routes(machine)
    pools = [(pool["Base"], pool["Size"]) for pool in information.get("DefaultAddressPools") or []]
    free = sum(
        not any(subnet.overlaps(network) for network in taken)
        for base, size in pools or _DEFAULT_POOLS
        for subnet in _subnets(base, size)
    )
    if free < _MIN_NETWORKS:
        yield fault(
            needs.docker and free == 0,
            f"The engine has addresses for {free} more networks; an environment takes one.",
            "aworld-train env down --orphans, docker network prune, or more default-address-pools in daemon.json.",
        )
    else:
        yield ok(f"Addresses for {free} more networks.")


def _subnets(base: str, size: int) -> list[Network]:
    network = ipaddress.ip_network(base, strict=False)
    return list(network.subnets(new_prefix=size)) if isinstance(network, Network) else []


def _routes(machine: Machine) -> list[Network]:
    """The networks of this machine's routes, which the engine avoids; without the default route."""
    networks = []
    for line in machine.text("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7))
        if mask:
            networks.append(Network((address & mask, mask.bit_count())))
    return networks


def _images(machine: Machine, needs: Needs, information: dict[str, Any]) -> Iterator[Finding]:
    folder = Path(str(information.get("DockerRootDir", "/var/lib/docker")))
    free = space_of(machine, machine.path(str(folder))).free
    if free < _MIN_IMAGES:
        yield fault(
            needs.docker and free < GB,
            f"{gigabytes(free)} are free for images and containers, in {folder}.",
            "docker system prune, or move the engine's data-root to a larger disk.",
        )
    else:
        yield ok(f"{gigabytes(free)} are free in {folder}.")
