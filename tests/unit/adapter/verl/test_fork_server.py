"""A fork that was asked for is what a new interpreter would be, ends with its client, and is made for the run alone."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from aworld_train.adapter.verl import fork_server
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE, KEY_VARIABLE, STAND_IN

SECONDS = 120
SERVER = """
import os, sys
from aworld_train.adapter.verl import fork_server
fork_server.PRELOADED = sys.argv[1].split(",")
server = os.getpid()
def wait():
    print("no fork" if os.getpid() == server else "a fork", flush=True)
    sys.stdin.read()
    sys.exit(7)
fork_server.run(wait)
"""
REPORT = """
import json, os, random, signal, sys
from pathlib import Path
import numpy, torch
from ray import ObjectRef
print(json.dumps({
    "arguments": sys.argv, "name": __name__, "path": sys.path[0], "directory": os.getcwd(), "parent": os.getppid(),
    "variables": {name: os.environ.get(name) for name in ("ONE", "TWO")}, "threads": torch.get_num_threads(),
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    "descriptors": [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()],
    "drawn": [ObjectRef.from_random().hex(), random.random(), numpy.random.rand(), torch.initial_seed()],
}))
sys.exit(3)
"""
PRELOADED = "numpy,torch"


class Server:
    """A fork server in a process of its own, whose main process ends when its input is closed."""

    def __init__(self, folder: Path, preloaded: str = PRELOADED, main: str = "a fork"):
        self.address, self.key = folder / "forks", folder / "key"
        self.key.write_text("ab" * 32)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, preloaded],
            env={**os.environ, ADDRESS_VARIABLE: str(self.address), KEY_VARIABLE: str(self.key), "ONE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{main}\n"

    def client(self, *arguments: str, **changed: str) -> "subprocess.Popen[str]":
        variables = {
            **os.environ,
            ADDRESS_VARIABLE: str(self.address),
            KEY_VARIABLE: str(self.key),
            **changed,
        }
        return subprocess.Popen(
            [*STAND_IN, *arguments], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self) -> int:
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"))
    yield running
    assert running.end() == 7


@pytest.fixture
def report(tmp_path: Path) -> str:
    script = tmp_path / "report.py"
    script.write_text(REPORT)
    return str(script)


@pytest.fixture
def parent(tmp_path: Path) -> str:
    script = tmp_path / "parent.py"
    script.write_text("import os, sys\nprint(os.getppid())\nsys.exit(3)")
    return str(script)


def finished(client: "subprocess.Popen[str]") -> str:
    output, _ = client.communicate(timeout=SECONDS)
    return output


def test_a_fork_has_the_arguments_circumstances_and_end_that_an_interpreter_would_have(
    server: Server, report: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    client = server.client(
        *("-u", "-s", report, "--a", "b c"), TWO="2", OMP_NUM_THREADS="1", RAY_JOB_ID="01000000"
    )
    made = json.loads(finished(client))
    assert client.returncode == 3
    assert made["parent"] == server.process.pid
    assert made["arguments"] == [report, "--a", "b c"]
    assert (made["name"], made["path"], made["directory"]) == ("__main__", str(tmp_path), str(tmp_path))
    # The environment is the client's, not the server's.
    assert made["variables"] == {"ONE": None, "TWO": "2"}
    assert made["threads"] == 1
    assert made["signals"] == [str(signal.default_int_handler), str(signal.SIG_DFL)]
    assert not [link for link in made["descriptors"] if "socket:" in link or "pidfd" in link]


def test_a_server_that_is_started_again_takes_the_place_of_the_last(tmp_path: Path, parent: str) -> None:
    (tmp_path / "forks").touch()
    server = Server(tmp_path)
    assert finished(server.client(parent)).strip() == str(server.process.pid)
    assert server.end() == 7


def test_forks_draw_other_random_numbers(server: Server, report: str) -> None:
    first, second = (json.loads(finished(server.client(report)))["drawn"] for _ in range(2))
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    "changed",
    [
        {"PYTHONHASHSEED": "5"},
        {"LD_LIBRARY_PATH": "/nowhere"},
        {"MALLOC_ARENA_MAX": "2"},
        {"RAY_JOB_ID": "02000000"},
    ],
    ids=str,
)
def test_what_a_fork_could_not_be_starts_an_interpreter(
    server: Server, parent: str, changed: dict[str, str]
) -> None:
    client = server.client(parent, **changed)
    assert finished(client) == f"{os.getpid()}\n"
    assert client.returncode == 3


def test_what_ray_preloads_into_its_own_processes_makes_no_difference(server: Server, parent: str) -> None:
    allocator = Path(ray.__file__).parent / "core" / "libjemalloc.so"
    assert finished(server.client(parent, LD_PRELOAD=str(allocator))).strip() == str(server.process.pid)


def test_a_program_that_is_no_script_is_run_by_an_interpreter(server: Server) -> None:
    assert finished(server.client("-c", "import os; print(os.getppid())")) == f"{os.getpid()}\n"


def test_a_request_without_the_run_s_key_makes_no_fork(server: Server, parent: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("cd" * 32)
    assert finished(server.client(parent, **{KEY_VARIABLE: str(key)})) == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("size", "streams", "end"),
    [(0, 2, False), (fork_server._MAX_REQUEST_BYTES + 1, 3, False), (9, 3, True), (9, 3, False)],
    ids=["too few streams", "too large", "ends early", "never ends"],
)
def test_a_request_that_is_not_whole_is_refused_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, streams: int, end: bool
) -> None:
    monkeypatch.setattr(fork_server, "_REQUEST_SECONDS", 600.0 if end else 0.01)
    (tmp_path / "key").write_text("ab" * 32)
    refusing = fork_server.ForkServer(tmp_path / "forks", tmp_path / "key")
    before = psutil.Process().num_fds()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / "forks"))
        socket.send_fds(client, [b"ab" * 32 + size.to_bytes(4, "big")], range(streams))
        if end:
            client.shutdown(socket.SHUT_WR)
        assert refusing._accept() is None
        assert client.recv(1) == b""
    assert psutil.Process().num_fds() == before


def test_a_client_ends_by_the_signal_that_ended_its_fork(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    client = server.client(str(script))
    finished(client)
    assert client.returncode == -signal.SIGTERM


def test_a_fork_ends_with_its_client(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()")
    client = server.client(str(script))
    assert client.stdout is not None
    fork = psutil.Process(int(client.stdout.readline()))
    # It is named as the interpreter would be.
    assert f"{sys.executable} {script}" in fork.cmdline()
    client.kill()
    psutil.wait_procs([fork], timeout=SECONDS)
    assert not fork.is_running()
    client.communicate(timeout=SECONDS)


def test_forks_that_a_raylet_has_started_end_with_it(tmp_path: Path) -> None:
    own = Server(tmp_path)
    raylet = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('running', flush=True)\nsys.stdin.read()")
    client = own.client(str(script), RAY_RAYLET_PID=str(raylet.pid))
    assert client.stdout is not None
    assert client.stdout.readline() == "running\n"
    raylet.communicate(b"\n", timeout=SECONDS)
    finished(client)
    assert client.returncode == -signal.SIGKILL
    assert own.end() == 7


def test_the_main_process_ends_with_the_server(tmp_path: Path) -> None:
    own = Server(tmp_path)
    (main,) = psutil.Process(own.process.pid).children()
    own.process.kill()
    psutil.wait_procs([main], timeout=SECONDS)
    assert not main.is_running()
    own.process.communicate(timeout=SECONDS)


def test_sigterm_is_for_the_forks_and_the_server_ends_as_its_main_process(tmp_path: Path) -> None:
    own = Server(tmp_path)
    (main,) = psutil.Process(own.process.pid).children()
    own.process.terminate()
    main.terminate()
    assert own.process.wait(timeout=SECONDS) == -signal.SIGTERM


def test_all_that_a_run_needs_can_be_forked(tmp_path: Path) -> None:
    own = Server(tmp_path, ",".join(fork_server.PRELOADED))
    # Threads of Python would be missing in forks.
    script = tmp_path / "script.py"
    script.write_text("import sys, threading\nprint(threading.active_count(), 'verl' in sys.modules)")
    assert finished(own.client(str(script))) == "1 True\n"
    assert own.end() == 7


def test_a_process_whose_forks_would_draw_the_same_identifiers_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws.py").write_text("from ray import ObjectRef\nObjectRef.from_random()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert Server(tmp_path, "numpy,torch,draws", main="no fork").end() == 7


def test_a_folder_that_has_gone_is_the_failure_of_the_program_and_not_of_the_server(tmp_path: Path) -> None:
    program = fork_server._Program([__file__], os.fsencode(tmp_path / "gone"), {})
    with pytest.raises(FileNotFoundError, match="gone"):
        program.run()
