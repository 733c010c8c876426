"""The egress in containers: a worker without any network, and the egress container behind its socket."""

import contextlib
import http.server
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from aworld_train.env.egress import (
    EgressRule,
    egress_passwords,
    egress_settings,
    forbidden_networks,
    machine_addresses,
)
from aworld_train.env.egress_image import build_egress_image, egress_container_options
from aworld_train.env.images import RUNTIME_FOLDER, USER
from aworld_train.serving.egress.hosts import resolve_hosts
from aworld_train.serving.worker.egress import proxy_variables
from tests.environments import eventually, need_docker

NAME = f"aworld-egress-test-{os.getpid()}"
SUBNET = f"93.184.{os.getpid() % 250}"
SOCKETS = "/run/aworld"
SECONDS = 60.0
# What a worker does, with a client in it: opens its port, and prints what becomes of some requests.
WORKER = """
import asyncio, json, os, socket, sys, urllib.error, urllib.request
sys.path[:0] = ["/opt/aworld/lib", "/opt/aworld"]
from aworld_train.serving.egress.forwarding import Forwarder

def get(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return [response.status, response.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.headers.get("X-Squid-Error", "")]
    except OSError as error:
        return [0, str(error)]

def direct(address):
    try:
        socket.create_connection(address, timeout=3).close()
        return True
    except OSError:
        return False

async def main():
    forwarder = Forwarder(lambda: asyncio.open_unix_connection("/run/aworld/0/egress.sock"), 10)
    await asyncio.start_server(forwarder.serve, "127.0.0.1", 3128)
    work = json.loads(os.environ["WORK"])
    found = [await asyncio.to_thread(get, url) for url in work["urls"]]
    print(json.dumps({"urls": found, "direct": [direct(tuple(one)) for one in work["direct"]]}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def client() -> Any:
    need_docker()
    import docker

    return docker.from_env()


@pytest.fixture(scope="module")
def image(client: Any) -> str:
    return build_egress_image(client, print)


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture
def network(client: Any) -> Iterator[Any]:
    from docker.types import IPAMConfig, IPAMPool

    # Its gateway, which is this machine, has a public number, so that there can be a public site without an internet.
    pool = IPAMPool(subnet=f"{SUBNET}.0/29", gateway=f"{SUBNET}.1")
    found = client.networks.create(
        NAME,
        driver="bridge",
        options={"com.docker.network.bridge.enable_icc": "false"},
        ipam=IPAMConfig(pool_configs=[pool]),
    )
    yield found
    found.remove()


@pytest.fixture
def volumes(client: Any) -> Iterator[dict[str, dict[str, str]]]:
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size=1m,uid={USER},gid={USER},mode=0700"}
    found = [
        client.volumes.create(f"{NAME}-{part}", driver="local", driver_opts=options)
        for part in ("0", "egress")
    ]
    yield {one.name: {"bind": f"{SOCKETS}/{one.name.rpartition('-')[2]}", "mode": "rw"} for one in found}
    for one in found:
        one.remove(force=True)


@contextlib.contextmanager
def egress(client: Any, image: str, network: Any, volumes: Any, settings: dict[str, Any]) -> Iterator[Any]:
    container = client.containers.run(
        image,
        name=f"{NAME}-egress",
        detach=True,
        network=network.name,
        volumes=volumes,
        environment={"AWORLD_EGRESS": json.dumps(settings)},
        **egress_container_options(),
    )
    try:
        assert eventually(lambda: b"have egress" in container.logs(), SECONDS), container.logs().decode()
        yield container
    finally:
        container.remove(force=True)


def worker(client: Any, image: str, volumes: Any, variables: dict[str, str], **work: Any) -> dict[str, Any]:
    output = client.containers.run(
        image,
        ["-c", WORKER],
        entrypoint=["python3", "-P"],
        name=f"{NAME}-worker",
        remove=True,
        network_mode="none",
        volumes={name: mount for name, mount in volumes.items() if mount["bind"].endswith("/0")},
        environment={**variables, "WORK": json.dumps({"urls": [], "direct": [], **work})},
        user=f"{USER}:{USER}",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_container_without_a_network_reaches_what_its_server_may_and_nothing_by_itself(
    client: Any, image: str, network: Any, volumes: Any
) -> None:
    server = http.server.ThreadingHTTPServer((f"{SUBNET}.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    private = [one for one in machine_addresses() if "." in one and not one.startswith(("127.", "93."))]
    targets = [*private, "169.254.169.254", "127.0.0.1", f"{SUBNET}.2"]
    urls = [f"http://{SUBNET}.1:{port}/", *(f"http://{target}:{port}/" for target in targets)]
    try:
        for more, expected in (((), 200), (machine_addresses(), 403)):
            rules = {"web": EgressRule(True, ())}
            passwords = egress_passwords(rules)
            settings = egress_settings(
                rules,
                passwords,
                [f"{SOCKETS}/0/egress.sock"],
                f"{SOCKETS}/egress/counts.sock",
                forbidden_networks([*more, f"{SUBNET}.2"]),
            )
            with egress(client, image, network, volumes, settings) as container:
                found = worker(
                    client,
                    image,
                    volumes,
                    {**proxy_variables("web", passwords["web"]), "NO_PROXY": "", "no_proxy": ""},
                    urls=urls,
                    direct=[
                        [f"{SUBNET}.1", port],
                        [f"{SUBNET}.2", 3128],
                        ["1.1.1.1", 53],
                        *([one, port] for one in private),
                    ],
                )
                assert found["urls"][0][0] == expected, found
                assert [status for status, _ in found["urls"][1:]] == [403] * len(targets)
                assert not any(found["direct"])
                without = worker(
                    client, image, volumes, {"http_proxy": "http://127.0.0.1:3128"}, urls=urls[:1]
                )
                assert without["urls"][0][0] == 407
                log = container.logs().decode()
                assert f"refused_address web 169.254.169.254:{port}" in log
                assert passwords["web"] not in log
    finally:
        server.shutdown()
        server.server_close()


def test_the_egress_container_has_no_privileges_and_squid_comes_back_when_it_is_killed(
    client: Any, image: str, network: Any, volumes: Any
) -> None:
    rules = {"web": EgressRule(False, resolve_hosts(("pypi.org",), {}))}
    sockets = [f"{SOCKETS}/0/egress.sock"]
    settings = egress_settings(
        rules, egress_passwords(rules), sockets, f"{SOCKETS}/egress/counts.sock", forbidden_networks()
    )
    with egress(client, image, network, volumes, settings) as container:
        _, output = container.exec_run(
            ["sh", "-c", "id -u; grep Cap /proc/1/status; touch /x /opt/aworld/x; ls /tmp"]
        )
        text = output.decode()  # errors may come before output
        assert (
            str(USER) in text.splitlines()
            and "CapEff:\t0000000000000000" in text
            and "CapBnd:\t0000000000000000" in text
        )
        assert text.count("Read-only file system") == 2
        pids = {psutil.Process(int(row[1])).name(): int(row[1]) for row in container.top()["Processes"]}
        assert {"squid", "unbound"} <= set(pids)
        psutil.Process(pids["squid"]).kill()

        def is_back() -> bool:
            return "squid" in {psutil.Process(int(row[1])).name() for row in container.top()["Processes"]}

        assert eventually(
            lambda: b"squid ended with SIGKILL; it is started again" in container.logs(), SECONDS
        )
        assert eventually(is_back, SECONDS), container.logs().decode()
        assert container.exec_run(["ls", "-l", sockets[0]])[1].decode().startswith("srw-------")


def test_an_egress_container_is_stopped_at_once(client: Any, image: str, network: Any, volumes: Any) -> None:
    settings = egress_settings({}, {}, [], f"{SOCKETS}/egress/counts.sock", forbidden_networks())
    with egress(client, image, network, volumes, settings) as container:
        container.stop(timeout=20)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0  # 137 would be one that was killed
        assert RUNTIME_FOLDER in " ".join(container.attrs["Config"]["Entrypoint"])
