"""An egress proxy for tests: the real Squid and Unbound on this machine, and name servers and sites of the test's own.

The addresses 127.77.0.0/16 count as public here, so that something on this machine can be a public site.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientSession, UnixConnector, web

from aworld_train.env.egress import EgressRule, egress_passwords, egress_settings, forbidden_networks
from aworld_train.serving.egress.hosts import Network
from aworld_train.serving.worker.egress import proxy_port, proxy_variables

REQUIRED = "AWORLD_TRAIN_TESTS_NEED_EGRESS"
"""Set where the absence of Squid and Unbound is a failure."""
PUBLIC = "127.77.0.1"
SECOND_PUBLIC = "127.77.0.2"
_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_SECONDS = 30.0
_numbers = itertools.count(1)


def need_egress() -> None:
    """Skip the test where Squid and Unbound cannot be run; fail it where they have to be."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = [program for program in ("squid", "unbound") if shutil.which(program, path=path) is None]
    reason = f"not installed: {', '.join(lacking)}" if lacking else ""
    if not reason and os.geteuid() != 0 and int(_UNPRIVILEGED.read_text()) > 53:
        reason = "only root may listen on port 53 here, as Unbound has to"
    if reason and os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    if reason:
        pytest.skip(reason)


async def resolve(resolver: str, name: str, version: int) -> list[str]:
    """The addresses that a name server on port 53 gives for a name: of IPv4, or of IPv6."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = labels + b"\0" + struct.pack("!HH", 1 if version == 4 else 28, 1)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await loop.sock_connect(client, (resolver, 53))
        await loop.sock_sendall(client, struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question)
        async with asyncio.timeout(_SECONDS):
            message = await loop.sock_recv(client, 4096)
    count, size = struct.unpack_from("!H", message, 6)[0], 4 if version == 4 else 16
    starts = range(12 + len(question) + 12, len(message), 12 + size)
    return [str(ipaddress.ip_address(message[at : at + size])) for at in starts][:count]


class NameServer:
    """A DNS server for a few names, over UDP.

    Attributes:
        answers: By name, the answers to successive queries; the last one is repeated.
        queried: The names in the queries that it received.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.queried: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        """Its address in Unbound's notation."""
        return f"127.0.0.1@{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, sender = self._socket.recvfrom(4096)
                self._socket.sendto(self._answer(question), sender)

    def _answer(self, message: bytes) -> bytes:
        labels, at = [], 12
        while message[at]:
            labels.append(message[at + 1 : at + 1 + message[at]].decode())
            at += 1 + message[at]
        name, (kind,) = ".".join(labels).lower(), struct.unpack_from("!H", message, at + 1)
        self.queried.append(name)
        is_known = name in self.answers
        records = []
        if is_known and kind in (1, 28):
            version = 4 if kind == 1 else 6
            answers = self.answers[name]
            answer = answers.pop(0) if len(answers) > 1 and kind == 1 else answers[0]
            records = [address for one in answer if (address := ipaddress.ip_address(one)).version == version]
        # RFC 1035: an answer, recursion available; 3: no such name. An address may be kept for 0 seconds.
        head = message[:2] + struct.pack("!HHHHH", 0x8180 if is_known else 0x8183, 1, len(records), 0, 0)
        body = b"".join(
            struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(one.packed)) + one.packed for one in records
        )
        return head + message[12 : at + 5] + body


@dataclass
class Egress:
    """A running egress proxy.

    Attributes:
        process: The egress process.
        port: The port at which tools connect.
        passwords: The passwords, by server.
        names: The name server that it queries.
    """

    process: "subprocess.Popen[bytes]"
    folder: Path
    port: int
    passwords: dict[str, str]
    names: NameServer
    log: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def variables(self, server: str) -> dict[str, str]:
        """The environment variables of a tool server."""
        return proxy_variables(server, self.passwords[server], self.port)

    def url(self, server: str) -> str:
        return self.variables(server)["HTTP_PROXY"]

    async def counts(self) -> dict[str, Any]:
        async with (
            ClientSession(connector=UnixConnector(str(self.folder / "counts.sock"))) as http,
            http.get("http://egress/counts") as response,
        ):
            counts: dict[str, Any] = await response.json()
            return counts

    async def outcomes(self, server: str, least: int = 1) -> dict[str, int]:
        """The number of requests of a server by outcome, once there are at least ``least``."""
        async with asyncio.timeout(_SECONDS):
            while True:
                outcomes: dict[str, int] = (await self.counts())["requests"].get(server, {})
                if sum(outcomes.values()) >= least:
                    return outcomes
                await asyncio.sleep(0.05)


# What a container without IPv6 has: a network of its own with nothing but loopback, and no address ::1.
_WITHOUT_IPV6 = """
import fcntl, os, socket, struct, sys
open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w").write("1")
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def need_network_namespaces() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("only root may have a network of its own here")


@contextlib.asynccontextmanager
async def running(rules: dict[str, EgressRule], ipv6: bool = True) -> AsyncIterator[Egress]:
    """An egress with these rules, and a worker's port that leads to it.

    With ``ipv6=False`` it is in a network of its own, in which there is nothing but it and no IPv6.
    """
    need_egress()
    names = NameServer()
    with tempfile.TemporaryDirectory(prefix="egress-test-") as name:
        folder = Path(name)
        passwords = egress_passwords(rules)
        settings = egress_settings(
            rules, passwords, [str(folder / "egress.sock")], str(folder / "counts.sock"), _forbidden()
        ) | {
            "nameservers": [names.address],
            "squid_port": free_port(),
            "resolver": f"127.53.{os.getpid() % 250 + 1}.{next(_numbers)}",
        }
        process = start(settings, folder / "log", ipv6)
        try:
            async with proxy_port(str(folder / "egress.sock"), port=0) as proxy:
                egress = Egress(process, folder, proxy.port, passwords, names, folder / "log", settings)
                await wait_until_up(egress)
                yield egress
        finally:
            names.close()
            process.terminate()
            process.wait(timeout=_SECONDS)


def start(settings: dict[str, Any], log: Path, ipv6: bool = True) -> "subprocess.Popen[bytes]":
    """The egress of an environment, as a process."""
    prefix = [] if ipv6 else ["unshare", "--net", sys.executable, "-c", _WITHOUT_IPV6]
    with log.open("ab") as written:
        return subprocess.Popen(
            [*(prefix or [sys.executable]), "-m", "aworld_train.serving.egress"],
            env={**os.environ, "AWORLD_EGRESS": json.dumps(settings)},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )


async def wait_until_up(egress: Egress) -> None:
    async with asyncio.timeout(_SECONDS):
        while True:
            assert egress.process.poll() is None, egress.log.read_text()
            with contextlib.suppress(ClientConnectorError):  # the socket's file is there before it listens
                await egress.counts()
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def site(address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """A site at an address of this machine that says what it was asked, headers included; its port."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path_qs, "headers": dict(request.headers), "at": address})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = web.TCPSite(runner, address, port)
    await listening.start()
    try:
        assert listening._server is not None
        yield listening._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _forbidden() -> Iterator[Network]:
    for network in forbidden_networks():
        if isinstance(network, ipaddress.IPv4Network) and network.is_loopback:
            yield from network.address_exclude(ipaddress.IPv4Network("127.77.0.0/16"))
        else:
            yield network
