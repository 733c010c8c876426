"""Every port of a live run: on loopback, and with something that authenticates who comes. A new one fails the test.

One run with two ranks, a KL loss and an agent that is a program, so that all that a run on this machine opens is open.
It is started from a directory with files named like libraries.
"""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import REPOSITORY, STARTED_BY, Workspace, assert_all_gone, descendants, find, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

GRPC, HTTP, CURVE, SILENT = "gRPC with token", "HTTP with token", "ZMQ with key", "nothing said"
ACCOUNTED = {
    "aworld_train.adapter.verl.main": {GRPC},
    "gcs_server": {GRPC},
    "raylet": {GRPC},
    "ray::DashboardAgent": {GRPC, HTTP},
    "ray::RuntimeEnvAgent": {HTTP},
    "ray::IDLE": {GRPC},
    "ray::TaskRunnerV1": {GRPC},
    "ray::TransferQueueController": {GRPC, CURVE},
    "ray::SimpleStorageUnit": {GRPC, CURVE},
    "ray::RewardLoopWorker": {GRPC},
    "ray::GlobalRequestLoadBalancer": {GRPC},
    "ray::TransformersServer": {GRPC},
    # Our gateways for the agents' models and tools, each with a key per episode.
    "ray::EpisodeWorker": {GRPC, HTTP},
    # gloo, which takes any peer; torch's builds have none of its encrypted transports.
    "ray::WorkerDict": {GRPC, SILENT},
    # The tool environment.
    "aworld_train.serving.env_gateway": {HTTP},
}
"""What may listen, by process, and what authenticates those who connect."""
# Idle workers come and go. The agent's HTTP port is 52365 in every Ray that a driver starts; Ray does without it where
# another run on the machine has it.
OPTIONAL = {("ray::IDLE", GRPC), ("ray::DashboardAgent", HTTP)}
SECONDS = 10.0
LIBRARIES = ("torch", "yaml", "ray", "verl")
# Every method of every service of Ray's, called with nothing in it and no token.
CALL_ALL = """
import collections, importlib, json, pkgutil, sys
import grpc
import ray.core.generated as generated
methods = []
for entry in pkgutil.iter_modules(generated.__path__):
    if entry.name.endswith("_pb2"):
        module = importlib.import_module(f"ray.core.generated.{entry.name}")
        for service in module.DESCRIPTOR.services_by_name.values():
            methods += [f"/{service.full_name}/{method.name}" for method in service.methods]
answers = {}
for port in sys.argv[1:]:
    answers[port] = collections.Counter()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in methods:
            try:
                channel.unary_unary(method)(b"", timeout=20)
                answers[port][f"OK {method}"] += 1
            except grpc.RpcError as error:
                answers[port][error.code().name] += 1
print(json.dumps(answers))
"""
DRIVER = "import ray; ray.init(address='127.0.0.1:{port}'); print('nodes:', len(ray.nodes()))"


@dataclass(frozen=True)
class Listener:
    """A listening socket."""

    process: str
    address: str
    port: int


@dataclass(frozen=True)
class LiveRun:
    """A run that is being trained.

    Attributes:
        process: The command.
        folder: Its run folder.
        directory: Where the command was started.
    """

    process: "subprocess.Popen[str]"
    folder: Path
    directory: Path

    @property
    def private(self) -> Path:
        """The folder with what is nobody else's business."""
        return Path("/tmp") / (self.folder / "private-folder").read_text()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The figures of each step that was trained."""
        metrics = self.folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines()[1:] if metrics.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def steps(self) -> int:
        """How many steps have been trained."""
        return len(self.rows)

    def processes(self) -> list[psutil.Process]:
        """All of the run, with its tool environment, which lives in a session of its own."""
        found = [psutil.Process(self.process.pid), *descendants(self.process.pid)]
        for candidate in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = candidate.cmdline()
                if f"--owner={self.process.pid} " in " ".join(line) and "--detach" in line:
                    found += [candidate, *candidate.children(recursive=True)]
        return found

    def listeners(self) -> list[Listener]:
        found = set()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                for connection in process.net_connections(kind="inet"):
                    # A socket for datagrams has no state, and listens from the moment it has an address.
                    if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM:
                        found.add(Listener(_name(process), connection.laddr.ip, connection.laddr.port))
        return sorted(found, key=lambda listener: (listener.process, listener.port))

    def unix_sockets(self) -> set[str]:
        found = set()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {c.laddr for c in process.net_connections(kind="unix") if c.laddr}
        return found


def _name(process: psutil.Process) -> str:
    """What a process is: its entry in `ACCOUNTED` if it has one."""
    line = " ".join(process.cmdline())
    words = line.split()
    first = words[0].split(".")[0] if words else ""
    known = [name for name in ACCOUNTED if name in line and not name.startswith("ray::")]
    return first if first.startswith("ray::") else (known[0] if known else line)


@pytest.fixture(scope="module")
def live(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    directory = tmp_path_factory.mktemp("user")
    for library in LIBRARIES:
        marker = directory / f"{library}-was-imported"
        (directory / f"{library}.py").write_text(
            f"open({str(marker)!r}, 'w')\nraise ImportError({library!r})\n"
        )
    (directory / "beside.py").write_text(
        "import time\n"
        "def score(data_source, solution_str, ground_truth, extra_info=None, **more):\n"
        # The run lasts as long as the tests, and costs little meanwhile.
        "    time.sleep(2)\n"
        # Rewards must differ within a group: otherwise nothing is learned and the KL divergence stays zero.
        "    return 0.5 if len(solution_str) % 2 else 0.25\n"
    )
    data = workspace.path / "data" / "arithmetic"
    overrides = [
        "name=ports",
        f"model.path={workspace.path / 'models' / 'tiny'}",
        f"dataset.train={data / 'train.parquet'}",
        f"dataset.val={data / 'val.parquet'}",
        f"agent.command=[python,{REPOSITORY / 'tests' / 'data' / 'agents' / 'one_turn.py'}]",
        "reward.function=beside:score",
        "cluster.gpus_per_node=2",
        "algorithm.kl_coef=0.01",
        "dataset.val_limit=2",
        "dataset.max_prompt_tokens=400",
        "rollout.max_response_tokens=256",
        "rollout.n=2",
        "trainer.batch_size=2",
        "trainer.microbatch_size=2",
        "trainer.steps=500",
        "trainer.save_every=1",
        "trainer.val_every=500",
    ]
    environment = {
        **os.environ,
        "AWORLD_TRAIN_STATE": str(workspace.path / "state"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        # It lives for several tests; that nothing of it is left running is asserted below.
        STARTED_BY: f"{os.getpid()}-ports",
    }
    process = subprocess.Popen(
        # As the installed command does, Python does not look for modules where it is started.
        [sys.executable, "-P", "-m", "aworld_train", "train", "recipes/quickstart.yaml", *overrides],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run = LiveRun(process, directory / "runs" / "ports", directory)
    try:
        wait_for("step", lambda: run.steps >= 1, 900, process)
        yield run
    finally:
        everything = run.processes() if process.poll() is None else []
        process.terminate()
        process.communicate(timeout=120)
    assert_all_gone(everything)


def test_every_port_is_on_loopback_and_takes_nobody_without_a_secret(live: LiveRun) -> None:
    listeners = live.listeners()
    outside = [one for one in listeners if one.address.removeprefix("::ffff:") not in ("127.0.0.1", "::1")]
    assert not outside, "listen on an address that other machines reach"
    with ThreadPoolExecutor(8) as threads:  # what says nothing is waited for
        kinds = threads.map(lambda listener: probe(listener.port), listeners)
        spoken = dict(zip(listeners, kinds, strict=True))
    unaccounted = [
        (listener, kind)
        for listener, kind in spoken.items()
        if kind not in ACCOUNTED.get(listener.process, set())
    ]
    assert not unaccounted, "nobody has accounted for these"
    # What is expected of a run is there, so that the test looks at all of it.
    seen = {(listener.process, kind) for listener, kind in spoken.items()}
    missing = {(name, kind) for name, kinds in ACCOUNTED.items() for kind in kinds} - seen
    assert not missing - OPTIONAL
    assert sum(kind == CURVE for kind in spoken.values()) == 3
    assert sum(listener.process == "ray::EpisodeWorker" for listener in spoken) == 3

    grpc_ports = [str(listener.port) for listener, kind in spoken.items() if kind == GRPC]
    answers = json.loads(python(CALL_ALL, *grpc_ports, seconds=300).stdout)
    assert set(answers) == set(grpc_ports)
    for listener in (one for one, kind in spoken.items() if kind == GRPC):
        codes = answers[str(listener.port)]
        assert set(codes) <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (listener, codes)
    refusing = [port for port, codes in answers.items() if codes.get("UNAUTHENTICATED")]
    # Ray's object manager has no method among those that Python knows of.
    assert len(refusing) >= len(grpc_ports) - 1

    # Nobody was harmed by all this.
    steps = live.steps
    wait_for("another step", lambda: live.steps > steps + 1, 300, live.process)


def probe(port: int) -> str:
    """What answers at a port to a request without a secret."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.settimeout(SECONDS)
        connection.sendall(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = _received(connection, 64)
    if answer.startswith(b"HTTP/1.1 "):
        # Our gateways have no page without the key of an episode in its address.
        return HTTP if answer.split()[1] in (b"401", b"404") else f"HTTP that answers {answer!r}"
    if answer[3:4] in (b"\x04", b"\x07"):  # SETTINGS or GOAWAY of HTTP/2
        return GRPC
    if mechanism := _zmq_mechanism(port):
        return CURVE if mechanism == b"CURVE" else f"ZMQ with {mechanism!r}"
    return SILENT if answer == b"" else f"something that answers {answer!r}"


def _received(connection: socket.socket, length: int) -> bytes:
    received = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while len(received) < length and (part := connection.recv(length - len(received))):
            received += part
    return received


def _zmq_mechanism(port: int) -> bytes:
    """The security mechanism that a ZMQ socket insists on: bytes 12 to 32 of its greeting (ZMTP 3.1).

    It is asked for CURVE: a socket that insists on another one may hang up before it names it.
    """
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.settimeout(SECONDS)
        connection.sendall(greeting)
        answer = _received(connection, len(greeting))
    if answer[:1] != b"\xff":
        return b""
    return answer[12:32].rstrip(b"\0") or b"another"


def test_ray_takes_a_driver_with_the_token_and_none_without(live: LiveRun) -> None:
    (gcs,) = {listener.port for listener in live.listeners() if listener.process == "gcs_server"}
    program = DRIVER.format(port=gcs)
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(live.private / "token")}
    assert "nodes: 1" in python(program, environment={**loopback, **token}).stdout
    for authentication in (
        {"RAY_AUTH_MODE": "disabled"},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
    ):
        refused = python(program, environment={**loopback, **authentication})
        assert refused.returncode != 0
        assert "nodes:" not in refused.stdout
        assert "nauthenticated" in refused.stderr or "authentication" in refused.stderr, refused.stderr


def test_files_and_unix_sockets_are_the_users_alone(live: LiveRun) -> None:
    private = live.private
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    for secret in ("token", "queue-key"):
        assert stat.S_IMODE((private / secret).stat().st_mode) == 0o600
    assert (private / "ray" / "session_latest").exists()
    assert {entry.name for entry in (private / "ray").iterdir()}.isdisjoint({"token", "queue-key", "tmp"})
    sockets = live.unix_sockets()
    assert sum(path.startswith(str(private)) for path in sockets) >= 2
    for path in sockets:
        assert path.startswith("/"), f"{path!r} is in no folder"
        assert any(_is_closed(folder) for folder in Path(path).parents), f"{path} can be reached by others"
    # No process shows a secret to those who may list processes.
    secrets = [(private / name).read_text() for name in ("token", "queue-key")]
    for process in live.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            assert not any(secret in line for secret in secrets)
    log = (live.folder / "logs" / "verl.log").read_text()
    assert not any(secret in log for secret in secrets)


def _is_closed(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def test_files_named_like_libraries_are_not_imported_and_the_users_module_is(live: LiveRun) -> None:
    assert list(live.directory.glob("*-was-imported")) == []
    episodes = (live.folder / "traces" / "episodes.jsonl").read_text().splitlines()
    assert {json.loads(line).get("reward") for line in episodes} & {0.25, 0.5}


def test_its_two_ranks_train_on_what_two_engines_sampled_with_a_kl_loss(live: LiveRun) -> None:
    wait_for("divergence", lambda: any(row["kl"] > 0 for row in live.rows), 600, live.process)
    assert all(row["rollout_probs_diff_max"] < 1e-4 for row in live.rows)
    actors = live.folder.glob("checkpoints/global_step_*/actor")
    assert any(len(list(actor.glob("model_world_size_2_rank_*.pt"))) == 2 for actor in actors)


def test_a_killed_worker_ends_the_run_with_its_reason(live: LiveRun) -> None:
    """The last test, for the run ends with it."""
    everything = live.processes()
    victim = find(everything, "ray::EpisodeWorker")
    assert victim is not None
    victim.kill()
    _, err = live.process.communicate(timeout=300)
    assert live.process.returncode == 1
    assert "Traceback" not in err and "--resume" in err
    assert json.loads((live.folder / "summary.json").read_text())["status"] == "failed"
    assert_all_gone(everything)


def python(
    program: str, *arguments: str, environment: "dict[str, str] | None" = None, seconds: float = 120
) -> "subprocess.CompletedProcess[str]":
    """Run a program that belongs to no run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=inherited | (environment or {}),
        capture_output=True,
        text=True,
        timeout=seconds,
    )
