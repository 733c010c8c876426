"""Environments in containers, on a real engine: nothing is left of them, and nothing gets out of them."""

import asyncio
import http.server
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
from docker.models.containers import Container
from mcp import McpError

import docker
from aworld_train.env import EnvConnection, down, find, status, up
from aworld_train.env.backend import Size
from aworld_train.env.directory import find_directory
from aworld_train.env.images import build, image_name
from aworld_train.errors import UsageError
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests import warm
from tests.environments import (
    ODD,
    all_ready,
    call,
    containers,
    eventually,
    need_docker,
    parts_on_engine,
    session,
)

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(600),
]

SMALL = Size(cpus=1.0, memory=512 << 20)


@pytest.fixture(scope="module")
def engine() -> Any:
    need_docker()
    return docker.from_env()


@pytest.fixture(scope="module")
def fragile(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvConnection]:
    """Two small workers that the tests of this module ill-treat."""
    keys = tmp_path_factory.mktemp("keys") / "env"
    keys.write_text("LOCKED_KEY=the-locked-one\n")
    limits = {"vanish_seconds": 2.0}
    yield up(
        ODD, name="fragile", backend="docker", workers=2, size=SMALL, env_file=keys, limits=limits, wait=120
    )
    down("fragile")


def container(name: str, part: str) -> Container:
    return next(one for one in containers(name) if one.name.endswith(part))


def left_of(name: str) -> list[str]:
    """Everything of that name that the engine or this machine still has."""
    found = parts_on_engine(name)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"aworld_train.env.container_supervisor" in command and name.encode() in command:
                found.append(f"process {entry.name}")
    return found


def cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return warm.run("-m", "aworld_train", *arguments, timeout=300)


# From nothing to nothing

START = ("env", "up", "--docker-dir", str(ODD), "--name", "cold", "--backend", "docker", "--workers", "1")


async def test_up_call_down_leaves_nothing(engine: Any) -> None:
    started = await asyncio.to_thread(
        cli,
        "env",
        "up",
        "--docker-dir",
        str(ODD),
        "--name",
        "cold",
        "--backend",
        "docker",
        "--workers",
        "1",
        "--wait",
        "120",
    )
    assert started.returncode == 0, started.stderr
    printed = json.loads(started.stdout)
    assert list(printed)[:3] == ["ip", "port", "token"]
    assert "locked is off: LOCKED_KEY not set" in " ".join(started.stderr.split())
    again = await asyncio.to_thread(cli, *START)
    assert json.loads(again.stdout) == printed
    async with session(EnvConnection(**printed)) as opened:
        assert "echo" in [tool.name for tool in (await opened.list_tools()).tools]
        assert await call(opened, "echo", text="hello") == "hello"
    tested = await asyncio.to_thread(cli, "env", "test", "cold", "--json")
    assert (tested.returncode, json.loads(tested.stdout)["failed"]) == (0, {})
    assert len(left_of("cold")) == 4
    ended = await asyncio.to_thread(cli, "env", "down", "cold", "--json")
    assert json.loads(ended.stdout) == {"environments": [{"name": "cold", "stopped": True}]}
    assert left_of("cold") == []


# Faults


async def test_a_worker_that_is_killed_in_a_call_is_a_typed_failure_and_comes_back(
    fragile: EnvConnection,
) -> None:
    assert all_ready(fragile)
    async with session(fragile) as opened:
        waiting = asyncio.ensure_future(opened.call_tool("wait", {"seconds": 60}))
        await asyncio.sleep(1.0)
        kill(await asyncio.to_thread(busy_worker, fragile))
        with pytest.raises(McpError) as failed:
            await waiting
        assert failed.value.error.data["type"] == "worker_lost"
    # The agent's own client says so in its own terms.
    server = ToolServer(fragile.mcp_url, {"Authorization": f"Bearer {fragile.token}"})
    async with ToolSession(server) as tools:
        await tools.call("echo", {"text": "on"})
        waiting_too = asyncio.ensure_future(tools.call("wait", {"seconds": 60}))
        await asyncio.sleep(1.0)
        kill(await asyncio.to_thread(busy_worker, fragile))
        with pytest.raises(EnvironmentLost, match="worker of this session was lost"):
            await waiting_too
    async with session(fragile) as opened:
        assert await call(opened, "echo", text="on") == "on"
    assert all_ready(fragile)


def busy_worker(connection: EnvConnection) -> Container:
    """The one worker that has a session."""
    states = httpx.get(f"http://{connection.ip}:{connection.port}/health").json()["states"]
    assert states.count("busy") == 1
    return container(connection.name, f"worker-{states.index('busy')}")


def kill(one: Container) -> None:
    """As a fault would, not as a person: what `docker kill` ended stays so."""
    os.kill(one.attrs["State"]["Pid"], signal.SIGKILL)


async def test_a_gateway_that_is_killed_comes_back_at_the_same_address(fragile: EnvConnection) -> None:
    assert all_ready(fragile)
    server = ToolServer(fragile.mcp_url, {"Authorization": f"Bearer {fragile.token}"})
    async with ToolSession(server) as tools:
        await tools.call("echo", {"text": "on"})
        waiting = asyncio.ensure_future(tools.call("wait", {"seconds": 60}))
        await asyncio.sleep(1.0)
        kill(await asyncio.to_thread(container, "fragile", "gateway"))
        with pytest.raises(EnvironmentLost):
            await waiting
    assert all_ready(fragile)
    async with session(fragile) as opened:
        assert await call(opened, "echo", text="on") == "on"
        assert "cancelled" not in await call(opened, "shell", command="ls -A")


async def test_thousands_of_processes_end_with_their_session(fragile: EnvConnection) -> None:
    assert all_ready(fragile)
    started_at = {one.name: one.attrs["State"]["StartedAt"] for one in containers("fragile")}
    async with session(fragile) as opened:
        # It may be that there is no room left for the thread that would write the answer.
        try:
            assert 100 < int(await call(opened, "fork", processes=10_000)) < 512
        except McpError as error:
            assert error.error.data["type"] in ("tool_timeout", "tool_crashed")
    assert all_ready(fragile)
    assert {one.name: one.attrs["State"]["StartedAt"] for one in containers("fragile")} == started_at


async def test_a_fork_bomb_ends_with_its_session(fragile: EnvConnection) -> None:
    assert all_ready(fragile)
    async with session(fragile) as opened:
        with suppress(McpError):
            await opened.call_tool("shell", {"command": "bomb() { bomb | bomb & }; bomb; sleep 1"})
    assert all_ready(fragile)
    async with session(fragile) as opened:
        assert await call(opened, "echo", text="on") == "on"


async def test_a_full_workspace_is_empty_for_the_next_session(fragile: EnvConnection) -> None:
    assert all_ready(fragile)
    async with session(fragile) as opened:
        assert 100 < int(await call(opened, "fill")) <= 128
        assert await call(opened, "echo", text="still") == "still"
    assert all_ready(fragile)
    for _ in range(2):
        async with session(fragile) as opened:
            assert (await call(opened, "shell", command="ls -A")) == ""


SPAWNER = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '[s]pawner[.]py' && basename $p; done"


async def test_a_session_that_tampers_with_its_worker_does_not_reach_the_next(fragile: EnvConnection) -> None:
    """Kill what starts tools, put a file beside the socket, leave System V memory: the worker is started anew."""
    for damage in (
        f"kill -9 $({SPAWNER})",
        f"kill -STOP $({SPAWNER})",
        "touch /run/aworld/*/LEFT",
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget(77, 4096, 0o1600))'",
    ):
        assert all_ready(fragile), damage
        with suppress(McpError, Exception):
            async with session(fragile) as opened:
                await opened.call_tool("shell", {"command": damage})
                await opened.call_tool("others_key", {})
        assert all_ready(fragile), damage
        for _ in range(2):
            async with session(fragile) as opened:
                assert "LEFT" not in await call(opened, "shell", command="ls -A /run/aworld/*")
                assert await call(opened, "shell", command="tail -n +2 /proc/sysvipc/shm") == ""
                assert await call(opened, "echo", text="on") == "on"


# Leaves what an owner can leave on a folder, and shows what it found there.
NOTES = """
import fcntl, os, struct
for folder in ("/workspace", "/tmp", os.environ["HOME"], "/dev/shm", "/dev/mqueue"):
    found = os.stat(folder)
    print(folder, oct(found.st_mode), found.st_atime_ns, found.st_mtime_ns, end=" ")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        print(fcntl.ioctl(descriptor, 0x80086601, bytes(8))[0])  # FS_IOC_GETFLAGS
        os.utime(folder, ns=(1_234_567_890_123_456_789,) * 2)
        fcntl.ioctl(descriptor, 0x40086602, struct.pack("=Q", 0xC0))  # FS_IOC_SETFLAGS: NODUMP, NOATIME
    except OSError:
        print("none")
"""


async def test_no_flag_and_no_time_of_a_folder_reaches_the_next_session(fragile: EnvConnection) -> None:
    found = []
    for _ in range(6):  # both workers, each more than once
        assert all_ready(fragile)
        async with session(fragile) as opened:
            found.append(await call(opened, "shell", command=f"python3 -c '{NOTES}'"))
    later = [line.split() for output in found[2:] for line in output.splitlines() if line.startswith("/")]
    assert not any("1234567890123456789" in line for line in later), found
    assert {line[4] for line in later if len(line) == 5} <= {"0", "none"}, found


# Starts that are cut off


def make_directory(path: Path, dockerfile: str, server: str = "") -> Path:
    shutil.copytree(ODD, path)
    (path / "Dockerfile").write_text((ODD / "Dockerfile").read_text() + dockerfile)
    if server:
        (path / "odd.py").write_text(server + (ODD / "odd.py").read_text())
    return path


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_start_that_is_cut_off_while_building_leaves_nothing(
    engine: Any, tmp_path: Path, number: signal.Signals
) -> None:
    # The engine remembers the steps of builds that went on to the end, those of other runs of this test too.
    step = f"sleep 60 # {uuid4()}"
    path = make_directory(tmp_path / "slow", f"RUN {step}\n")

    def building() -> list[Container]:
        all_containers = engine.containers.list(all=True, ignore_removed=True)
        return [one for one in all_containers if step in str(one.attrs["Config"]["Cmd"])]

    with starting(path, "cut-build") as (started, output):
        assert eventually(lambda: building() or started.poll() is not None, 120), output.read_text()
        assert started.poll() is None, output.read_text()
        started.send_signal(number)
        assert started.wait(20) == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert cli("env", "down", "--orphans").returncode == 0
    assert left_of("cut-build") == []
    assert eventually(lambda: not building(), 90)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_start_that_is_cut_off_is_an_orphan_and_can_be_removed(
    engine: Any, tmp_path: Path, number: signal.Signals
) -> None:
    path = make_directory(tmp_path / "slow", "", "import time; time.sleep(60)\n")
    with starting(path, "cut-start") as (started, output):
        assert eventually(lambda: len(left_of("cut-start")) >= 4, 120), output.read_text()
        started.send_signal(number)
        started.wait(20)
    if number == signal.SIGKILL:
        assert [one.state for one in status("cut-start")] == ["abandoned"]
    assert cli("env", "down", "--orphans").returncode == 0
    assert left_of("cut-start") == []


@contextmanager
def starting(path: Path, name: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A start in progress, and the file with its output; the start is killed when the block ends."""
    output = path.parent / "output"
    command = [
        "env",
        "up",
        "--docker-dir",
        str(path),
        "--name",
        name,
        "--backend",
        "docker",
        "--workers",
        "1",
    ]
    with output.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", "aworld_train", *command],
            stdout=subprocess.DEVNULL,
            stderr=file,
            preexec_fn=_restore_interrupts,
        )
    try:
        yield started, output
    finally:
        started.kill()
        started.wait()


def _restore_interrupts() -> None:
    """Handle SIGINT as at a terminal; a shell starts background processes with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_orphan_is_no_environment_that_is_being_started_or_used(fragile: EnvConnection) -> None:
    assert cli("env", "down", "--orphans").returncode == 0
    assert all_ready(fragile)


OWNER = """
import os, sys, time
from aworld_train.env import up
up(sys.argv[1], name="owned", backend="docker", workers=1, servers=("odd",), owner_pid=os.getpid(), wait=120)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_environment_ends_with_its_owner(engine: Any, number: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(ODD)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        assert owner.stdout.readline() == "up\n"
        owner.send_signal(number)
    assert eventually(lambda: left_of("owned") == [], 30)


async def test_data_is_read_by_every_worker_and_written_by_none(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "task.txt").write_text("what is asked")
    try:
        connection = up(
            ODD, name="data", backend="docker", workers=2, size=SMALL, data=tmp_path / "data", wait=120
        )
        async with session(connection) as one, session(connection) as other:
            for opened in (one, other):
                shell = 'cat "$ATTACHMENTS/deep/task.txt"; cat /attachments/deep/task.txt | wc -c'
                assert (await call(opened, "shell", command=shell)).split() == ["what", "is", "asked13"]
                written = await call(
                    opened,
                    "shell",
                    command="touch /attachments/x 2>&1; rm -f /attachments/deep/task.txt 2>&1",
                )
                assert written.count("Read-only file system") == 2
        assert (tmp_path / "data" / "deep" / "task.txt").read_text() == "what is asked"
        (now,) = status("data")
        assert now.data == str(tmp_path / "data")
    finally:
        down("data")


def test_an_image_may_have_less_where_fewer_servers_are_asked_for(engine: Any, tmp_path: Path) -> None:
    path = make_directory(tmp_path / "less", 'ARG SERVERS\nRUN echo "[$SERVERS]" > /servers\n')
    directory, messages = find_directory(path), []
    one = build(engine, directory, messages.append, only=("odd",))
    assert engine.containers.run(one, ["/servers"], entrypoint="cat", remove=True) == b"[odd]\n"
    full = build(engine, directory, messages.append)
    assert engine.containers.run(full, ["/servers"], entrypoint="cat", remove=True) == b"[]\n"
    assert build(engine, directory, messages.append, only=("odd",)) == full != one
    for image in (one, full):
        engine.images.remove(image, force=True)


def test_a_runtime_that_the_engine_does_not_have_is_answered_with_those_it_has(engine: Any) -> None:
    with pytest.raises(UsageError, match=r"has no runtime 'run[^']+'.*Did you mean 'runc'"):
        up(ODD, name="no-runtime", backend="docker", workers=1, runtime="runcc")
    assert left_of("no-runtime") == []


def test_a_build_that_fails_says_why(engine: Any, tmp_path: Path) -> None:
    path = make_directory(tmp_path / "bad", "RUN echo 'the last words' && false\n")
    failed = cli("env", "up", "--docker-dir", str(path), "--name", "bad-build", "--backend", "docker")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "could not be built" in failed.stderr
    assert "the last words" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert left_of("bad-build") == []


# Security


# Prints what could be connected to, and what the proxy says to requests with and without a password.
SCAN = """
import json, os, socket, sys, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

def connects(target):
    try:
        socket.create_connection(target, timeout=3).close()
        return True
    except OSError:
        return False

def status(url, proxy):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    try:
        with opener.open(url, timeout=20) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)

request = json.loads(sys.argv[1])
with ThreadPoolExecutor(64) as threads:
    targets = [(host, port) for host in request["hosts"] for port in request["ports"]]
    reached = [target for target, reached in zip(targets, threads.map(connects, targets)) if reached]
own, none = os.environ.get("HTTP_PROXY", ""), "http://127.0.0.1:3128"
for name in ("NO_PROXY", "no_proxy"):  # the proxy is to be asked for loopback, too
    os.environ.pop(name, None)
proxied = {url: [status(url, own) if own else None, status(url, none)] for url in request["urls"]}
print(json.dumps({"reached": reached, "proxied": proxied}))
"""


@pytest.fixture(scope="module")
def let_out(engine: Any) -> Iterator[tuple[EnvConnection, str]]:
    """A worker whose tools may reach one site on this machine, and its address."""
    (host,) = (one.address for one in psutil.net_if_addrs()["docker0"] if one.family == socket.AF_INET)
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), handler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        address = f"{host}:{site.server_address[1]}"
        yield (
            up(
                ODD,
                name="let-out",
                backend="docker",
                workers=1,
                size=SMALL,
                servers=("odd",),
                egress_hosts=(address,),
                wait=120,
            ),
            address,
        )
        down("let-out")
        site.shutdown()


async def test_nothing_but_the_proxy_answers_to_a_worker(
    fragile: EnvConnection, let_out: tuple[EnvConnection, str]
) -> None:
    """All addresses of this machine, all ports that anything listens at, metadata, two other environments."""
    connection, site = let_out
    own = {str(one.address).partition("%")[0] for all_of in psutil.net_if_addrs().values() for one in all_of}
    networks = [
        container(name, "gateway").attrs["NetworkSettings"]["Networks"][f"aworld-{name}"]
        for name in ("fragile", "let-out")
    ]
    inside = {network[key] for network in networks for key in ("IPAddress", "Gateway")}
    listening = {one.laddr.port for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    hosts = (
        own | inside | {"169.254.169.254", "fd00:ec2::254", "host.docker.internal", "8.8.8.8", "127.0.0.1"}
    )
    urls = [f"http://{host}:{fragile.port}/health" for host in sorted(inside)]
    urls += [
        "http://169.254.169.254/latest/meta-data/",
        f"http://{site}/",
        f"http://127.0.0.1:{fragile.port}/",
    ]
    request = {"hosts": sorted(hosts), "ports": sorted({*listening, 53, 80, 443, 3128, 8080}), "urls": urls}
    scan = f"exec python3 -c {shlex.quote(SCAN)} {shlex.quote(json.dumps(request))}"
    async with session(fragile) as shut_in, session(connection) as opened:
        alone = json.loads(await call(shut_in, "shell", command=scan))
        found = json.loads(await call(opened, "shell", command=scan))
    assert alone["reached"] == []
    assert found["reached"] == [["127.0.0.1", 3128]]
    for url, (with_password, without) in found["proxied"].items():
        assert with_password == (200 if site in url else 403), url
        assert without == 407, url
    counted = {("refused_host", "odd"): len(urls) - 1, ("refused_credentials", "-"): len(urls)}
    lines = [
        f'aworld_egress_requests_total{{outcome="{outcome}",server="{server}"}} {count}.0'
        for (outcome, server), count in counted.items()
    ]
    metrics = f"http://{connection.ip}:{connection.port}/metrics"
    assert await asyncio.to_thread(
        eventually, lambda: all(line in httpx.get(metrics).text for line in lines), 10
    )
    (now,) = status("let-out")
    assert now.refused == sum(counted.values())


async def test_a_worker_has_no_privileges_and_no_place_to_write_but_its_own(fragile: EnvConnection) -> None:
    async with session(fragile) as opened:
        status_text = await call(opened, "read_file", path="/proc/self/status")
        facts = dict(line.split(":\t", 1) for line in status_text.splitlines() if ":\t" in line)
        user = facts["Uid"].split()[0]
        assert int(user) >= 0x7000_0000
        assert facts["Uid"].split() == facts["Gid"].split() == [user] * 4
        assert {facts[name].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {""}
        assert facts["NoNewPrivs"] == "1"
        for path in ("/x", "/opt/aworld/x", "/srv/odd/x", "/etc/x", "/var/x", "/run/x"):
            assert "cannot touch" in await call(opened, "shell", command=f"touch {path}")
        assert "docker.sock" not in await call(opened, "read_file", path="/proc/self/mountinfo")


async def test_a_key_can_be_read_by_nobody_but_its_server(fragile: EnvConnection, engine: Any) -> None:
    async with session(fragile) as opened:
        assert await call(opened, "locked_key") == "the-locked-one"
        pid = await call(opened, "locked_pid")
        for secret in (f"/proc/{pid}/environ", f"/proc/{pid}/mem", "/proc/1/environ", "/proc/1/mem"):
            assert "Permission denied" in await call(opened, "read_file", path=secret)
        # What it forked is called as it is; it is the first of them.
        spawner = min((await call(opened, "shell", command=SPAWNER)).split(), key=int)
        assert "Permission denied" in await call(opened, "read_file", path=f"/proc/{spawner}/environ")
    record = find("fragile")
    assert record is not None
    secrets = ["the-locked-one", record.credentials.secret, fragile.token]
    image = engine.images.get(image_name(find_directory(ODD)))
    shown = {
        "image": json.dumps(image.attrs) + json.dumps(image.history()),
        "gateway": json.dumps({**container("fragile", "gateway").attrs, "Config": None}),
        "labels": json.dumps([one.labels for one in containers("fragile")]),
        "logs": b"".join(one.logs() for one in containers("fragile")).decode(),
        "network": json.dumps([one.attrs for one in engine.networks.list()]),
    }
    for source, text in shown.items():
        assert not [secret for secret in secrets if secret in text], source
    assert "the-locked-one" not in json.dumps(container("fragile", "gateway").attrs)
    for one in containers("fragile"):
        if "worker" in one.name:
            assert record.credentials.secret not in json.dumps(one.attrs)


# The engine itself


@pytest.mark.skipif(
    "AWORLD_TRAIN_TESTS_ENGINE" not in os.environ,
    reason="restarts the engine: set AWORLD_TRAIN_TESTS_ENGINE to a program that takes `stop` and `start`",
)
async def test_an_environment_comes_back_with_its_engine(fragile: EnvConnection) -> None:
    program = os.environ["AWORLD_TRAIN_TESTS_ENGINE"]
    for action in ("stop", "start"):
        await asyncio.to_thread(
            subprocess.run, [program, action], check=True, timeout=120, stdout=subprocess.DEVNULL
        )
    assert all_ready(fragile, 90)
    async with session(fragile) as opened:
        assert await call(opened, "echo", text="back") == "back"
