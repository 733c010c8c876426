"""What the spawner does with an order, in a fork of this process: who gets which descriptors, variables and rights."""

import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import psutil
import pytest

from aworld_train.serving.worker import spawner
from aworld_train.serving.worker.spawner import ToolUser
from tests.environments import eventually

WITHIN = 30.0
HERE = __name__
_PR_GET_DUMPABLE = 3  # from linux/prctl.h
NOBODY = ToolUser(id=65534, max_processes=50)


class Spawner:
    """A spawner that runs in a fork of this process, and its log."""

    def __init__(self, log: Path, *functions: str, user: ToolUser | None = None):
        self._orders, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.settimeout(WITHIN)
        self.socket = str(Path(f"/proc/self/fd/{other_end.fileno()}").readlink())
        self.log = log
        self.pid = os.fork()
        if self.pid == 0:
            self._run(other_end, functions, user)
        other_end.close()

    def _run(self, orders: socket.socket, functions: tuple[str, ...], user: ToolUser | None) -> None:
        code = 1
        try:
            self._orders.close()
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 2)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            user_json = json.dumps(user and asdict(user))
            sys.argv = ["spawner.py", str(orders.detach()), user_json, *functions]
            spawner.main()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def order(self, order: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self._orders.recv(1 << 16)))

    def close(self) -> int:
        """Close the socket; returns the spawner's exit status."""
        self._orders.close()
        return os.waitpid(self.pid, 0)[1]


class Server:
    """A server that was started by an order: its pid, and the other ends of its standard streams."""

    def __init__(self, starter: Spawner, folder: Path, *, private: bool = False, **what: object):
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        with tempfile.TemporaryFile() as variables:
            variables.write(json.dumps({"PATH": "/usr/bin:/bin", "OWN": "value"}).encode())
            variables.seek(0)
            order = {**what, "cwd": str(folder), "private": private}
            self.answer = starter.order(order, (stdin, stdout, variables.fileno()))
        os.close(stdin)
        os.close(stdout)
        self.pid = self.answer["pid"]

    def read(self) -> str:
        """What it writes until it and its children have ended; needs every copy of its output to be closed."""
        with contextlib.suppress(OSError):
            os.close(self._stdin)
        with os.fdopen(self._stdout) as stream:
            return stream.read()

    def lines(self) -> IO[str]:
        return os.fdopen(self._stdout)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Spawner]:
    made = Spawner(tmp_path / "log", f"{HERE}:tell", f"{HERE}:fail")
    assert made.answer() == {"ready": True}
    yield made
    made.close()


def tell() -> None:
    """A server that tells of itself, and leaves the end of what it says to its standard output."""
    facts = {
        "variables": dict(os.environ),
        "arguments": sys.argv,
        "folder": str(Path.cwd()),
        "leads": os.getsid(0) == os.getpid(),
        "dumpable": ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0),
        "first to be ended": Path("/proc/self/oom_score_adj").read_text().strip(),
        "signals": [signal.getsignal(one) == signal.SIG_DFL for one in (signal.SIGCHLD, signal.SIGINT)],
        "input": sys.stdin.read(),
        "sockets": [str(target) for target in targets() if "socket:" in target.name],
        "descriptors of its streams": [
            targets().count(Path(f"/proc/self/fd/{n}").readlink()) for n in (0, 1)
        ],
    }
    sys.stdout.write(json.dumps(facts))


def targets() -> list[Path]:
    """What the open descriptors of this process refer to."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return found


def replace_streams() -> None:
    """A server that uses its descriptors instead of the streams."""
    sys.stdin = sys.stdout = io.StringIO()
    os.write(1, os.read(0, 100) or b"nothing")


def fail() -> None:
    """A server that says something, and has a fault."""
    sys.stdout.write("said before")
    raise RuntimeError("a fault of its own")


def give_up() -> None:
    sys.stdout.write("good bye")
    sys.exit("no reason")


# Servers


@pytest.mark.parametrize("private", [False, True])
def test_a_server_has_its_own_variables_folder_streams_and_session(
    running: Spawner, tmp_path: Path, private: bool
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text().strip()
    facts = json.loads(Server(running, tmp_path, function=f"{HERE}:tell", private=private).read())
    assert running.socket not in facts.pop("sockets")
    assert facts == {
        "variables": {"PATH": "/usr/bin:/bin", "OWN": "value"},
        "arguments": [f"{HERE}:tell"],
        "folder": str(tmp_path),
        "leads": True,
        "dumpable": int(not private),
        "first to be ended": before if private else "500",
        "signals": [True, True],
        "input": "",
        "descriptors of its streams": [1, 1],
    }
    assert Server(running, tmp_path, function=f"{HERE}:replace_streams").read() == "nothing"
    assert running.log.read_text() == ""


@pytest.mark.parametrize("private", [False, True])
def test_a_server_runs_as_the_user_of_tools_and_still_ends_with_the_spawner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    def change_user(user: ToolUser) -> None:
        # As the kernel does where the user changes; see prctl(2).
        spawner._prctl(spawner._PR_SET_DUMPABLE, int(private))
        spawner._prctl(spawner._PR_SET_PDEATHSIG, 0)
        (tmp_path / "user").write_text(f"{os.getpid()} {user}")

    monkeypatch.setattr(spawner, "_change_user", change_user)
    monkeypatch.setattr(spawner, "_OOM_SCORE_ADJUSTMENT", "600")
    starter = Spawner(tmp_path / "log", f"{HERE}:tell", user=NOBODY)
    assert starter.answer() == {"ready": True}
    server = Server(starter, tmp_path, private=private, function=f"{HERE}:tell")
    facts = json.loads(server.read())
    assert facts["dumpable"] == int(not private)
    assert facts["first to be ended"] == "600"
    assert (tmp_path / "user").read_text() == f"{server.pid} {NOBODY}"
    lasting = Server(starter, tmp_path, private=private, argv=["sh", "-c", "echo ready; exec sleep 600"])
    with lasting.lines() as lines:
        assert lines.readline() == "ready\n"
        assert starter.close() == 0
        assert lines.read() == ""


def start_child() -> None:
    """A server that starts a program, which inherits its variables, and moves a file between folders."""
    child = subprocess.Popen(["sleep", "600"])
    Path("from/here").mkdir(parents=True)
    Path("from/here/file").touch()
    Path("from/here/file").rename("moved")
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    child.wait()


def test_no_server_reads_the_variables_of_what_another_one_started(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change to the user of tools")
    if not spawner._has_domains():
        pytest.skip("this kernel has no Landlock that keeps servers apart")
    starter = Spawner(tmp_path / "log", f"{HERE}:start_child", user=NOBODY)
    assert starter.answer() == {"ready": True}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as workspace:
        os.chown(workspace, NOBODY.id, NOBODY.id)
        with_keys = Server(starter, Path(workspace), private=True, function=f"{HERE}:start_child")
        with with_keys.lines() as lines:
            child = int(lines.readline())
            read = f"id -u; cat /proc/{child}/environ; ls -l /proc/{child}/exe; cat /proc/self/environ"
            output = Server(starter, Path(workspace), argv=["sh", "-c", f"({read}) 2>&1"]).read()
            starter.close()
        assert Path(workspace, "moved").exists()
    assert output.splitlines()[0] == str(NOBODY.id)
    assert output.count("OWN=value") == 1 and output.count("Permission denied") == 2, output


def signal_others() -> None:
    """A server that moves a file, ends its own child, and tries to signal its parent and its parent's."""
    Path("folder").mkdir()
    Path("file").touch()
    Path("file").rename("folder/file")
    child = subprocess.Popen(["sleep", "600"])
    child.kill()
    ends = [child.wait()]
    spawner_pid = os.getppid()
    for pid in (spawner_pid, psutil.Process(spawner_pid).ppid()):
        try:
            os.kill(pid, 0)
            ends.append(0)
        except PermissionError:
            ends.append(1)
    sys.stdout.write(json.dumps(ends))


def test_tools_of_plain_processes_signal_no_others(tmp_path: Path) -> None:
    if spawner._landlock_version() < spawner._SCOPES_SINCE:
        pytest.skip("this kernel has no Landlock that keeps signals inside")
    starter = Spawner(tmp_path / "log", f"{HERE}:signal_others")
    starter.answer()
    server = Server(starter, tmp_path, function=f"{HERE}:signal_others")
    assert json.loads(server.read()) == [-signal.SIGKILL, 1, 1]
    assert (tmp_path / "folder/file").exists()
    starter.close()


def test_a_program_has_only_the_variables_of_its_order(running: Spawner, tmp_path: Path) -> None:
    script = "pwd; cat; env; echo end of $0"
    server = Server(running, tmp_path, argv=["sh", "-c", script, "it"])
    os.write(server._stdin, b"asked\n")
    lines = server.read().splitlines()
    assert lines[:2] == [str(tmp_path), "asked"] and lines[-1] == "end of it"
    assert {line for line in lines[2:-1] if not line.startswith(("PWD=", "_=", "SHLVL=", "OLDPWD="))} == {
        "PATH=/usr/bin:/bin",
        "OWN=value",
    }


def test_a_servers_fault_is_in_the_log_and_others_are_started(running: Spawner, tmp_path: Path) -> None:
    assert Server(running, tmp_path, function=f"{HERE}:fail").read() == "said before"
    assert Server(running, tmp_path, function=f"{HERE}:give_up").read() == "good bye"
    assert Server(running, tmp_path, function=f"{HERE}:is_not_there").read() == ""
    assert Server(running, tmp_path, argv=["is-not-there"]).read() == ""
    log = running.log.read_text()
    assert "a fault of its own" in log and "no reason" not in log
    assert "is_not_there" in log and "No such file" in log
    assert running.order({}) == {"ready": True}


def test_a_module_that_cannot_be_imported_is_told_of_and_keeps_no_other_from_starting(tmp_path: Path) -> None:
    starter = Spawner(tmp_path / "log", "is.no.module:main", f"{HERE}:tell")
    assert starter.answer() == {"ready": True}
    assert json.loads(Server(starter, tmp_path, function=f"{HERE}:tell").read())["leads"]
    assert "No module named 'is'" in starter.log.read_text()
    assert starter.close() == 0


def test_kill_ends_a_server_with_its_group_and_no_other(running: Spawner, tmp_path: Path) -> None:
    script = "sleep 600 & echo ready; wait"
    one, other = (Server(running, tmp_path, argv=["sh", "-c", script]) for _ in range(2))
    with one.lines() as lines, other.lines() as others:
        assert lines.readline() == others.readline() == "ready\n"
        assert running.order({"kill": one.pid}) == {"ready": True}
        # The end of the output is that of the shell and of its child.
        assert lines.read() == ""
        os.kill(other.pid, 0)
        assert running.order({"kill": other.pid}) == {"ready": True}
        assert others.read() == ""
    # It may have ended by itself, and has been reaped.
    assert eventually(lambda: not Path(f"/proc/{one.pid}").exists(), WITHIN)
    assert running.order({"kill": one.pid}) == {"ready": True}
    spawner._kill_group(one.pid)


def test_servers_end_with_the_spawner(tmp_path: Path) -> None:
    starter = Spawner(tmp_path / "log")
    starter.answer()
    server = Server(starter, tmp_path, argv=["sh", "-c", "echo ready; exec sleep 600"])
    with server.lines() as lines:
        assert lines.readline() == "ready\n"
        os.kill(starter.pid, signal.SIGINT)  # which is the worker's
        assert starter.order({}) == {"ready": True}
        assert starter.close() == 0
        assert lines.read() == ""
    spawner._kill_group(server.pid)


SHOW = """
import ctypes, gc, sys
from aworld_train.serving.worker import spawner

def show(*_):
    libc, end_signal = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(2, ctypes.byref(end_signal))  # PR_GET_PDEATHSIG
    print(libc.prctl(3), end_signal.value, gc.get_freeze_count() > 0, "anyio._backends._asyncio" in sys.modules)
    return b"", [], 0, None

spawner.socket.recv_fds = show
spawner.main()
"""


@pytest.mark.parametrize("functions", [(), ("anyio:run",)])
def test_the_spawner_cannot_be_traced_ends_with_the_worker_and_has_imported_what_servers_need(
    functions: tuple[str, ...],
) -> None:
    worker_end, spawner_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with worker_end, spawner_end:
        done = subprocess.run(
            [sys.executable, "-c", SHOW, str(spawner_end.fileno()), "null", *functions],
            pass_fds=[spawner_end.fileno()],
            capture_output=True,
            text=True,
            timeout=WITHIN,
        )
    shown = f"0 {int(signal.SIGKILL)} True {bool(functions)}\n"
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_without_a_new_process_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    reading, writing = os.pipe()
    with socket.socket() as orders:
        answer = spawner._start({"argv": ["true"]}, [writing], orders, None)
    assert answer == {"error": f"no new process: {os.strerror(errno.EAGAIN)}"}
    with os.fdopen(reading) as stream:
        assert stream.read() == ""


# Wiping


class Wiping:
    """Stands in for the module that wipes: what it was asked for, and how it fails."""

    class NotClean(Exception):
        pass

    def __init__(self, clean: Callable[[], None] = lambda: None, fails_at: int = 0):
        self.clean_container = clean
        self.spared: list[frozenset[int]] = []
        self._fails_at = fails_at

    def end_all_but(self, spared: frozenset[int]) -> None:
        self.spared.append(spared)
        if len(self.spared) == self._fails_at:
            raise self.NotClean("one would not end")


def wiped(module: Wiping, user: ToolUser | None = NOBODY) -> dict[str, Any]:
    order = {"wipe": True}
    with socket.socket() as orders:
        return spawner._carry_out(order, [], orders, user, cast(Any, module))


def test_without_a_user_of_their_own_nothing_is_wiped(running: Spawner) -> None:
    answer = running.order({"wipe": True})
    assert answer == {"error": "without a user of their own, the processes of tools cannot be identified"}


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (lambda: None, {}),
        (lambda: (_ for _ in ()).throw(OSError("a folder is in use")), {"error": "a folder is in use"}),
        (lambda: os._exit(0), {"error": "what cleans it has ended"}),
        (lambda: sys.exit(0), {"error": "it could not be cleaned"}),
    ],
)
def test_everything_but_the_first_process_and_the_spawner_ends_before_and_after_the_cleaning(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any], answer: dict[str, str]
) -> None:
    users: list[ToolUser] = []
    monkeypatch.setattr(spawner, "_change_user", users.append)
    module = Wiping(lambda: work() if users == [NOBODY] else sys.exit("as root"))
    assert wiped(module) == answer
    assert module.spared == [frozenset({1, os.getpid()})] * 2
    assert users == []  # this process stays who it is


def test_what_cleans_sees_that_a_program_of_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner, "_change_user", lambda _: None)
    before = signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # as in the spawner, whose children leave no status
    try:
        problem = spawner._run_as(NOBODY, lambda: cast(None, subprocess.run(["false"], check=True)))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert "returned non-zero exit status 1" in problem


@pytest.mark.parametrize("at", [1, 2])
def test_a_process_that_does_not_end_is_no_clean_worker(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(spawner, "_change_user", lambda _: None)
    assert wiped(Wiping(fails_at=at)) == {"error": "one would not end"}


# Rights


def rights() -> dict[str, object]:
    """The user, the groups and the capabilities of this process."""
    status = Path("/proc/self/status").read_text()
    return {
        "users": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "processes": list(resource.getrlimit(resource.RLIMIT_NPROC)),
        "capabilities": [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("Cap")],
    }


def test_a_tool_has_its_users_rights_and_none_of_the_spawners(tmp_path: Path) -> None:
    file = tmp_path / "rights"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([NOBODY.id])
            spawner._change_user(NOBODY)
            os.write(descriptor, json.dumps(rights()).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(descriptor)
    if not (written := file.read_text()):
        assert os.geteuid() != 0 or not _maps_all_users()
        pytest.skip("this user may not become another")
    found = json.loads(written)
    assert found["users"] == [NOBODY.id] * 6
    assert found["groups"] == []
    assert found["processes"] == [NOBODY.max_processes] * 2
    assert found["capabilities"] == [0] * 5  # inheritable, permitted, effective, bounding, ambient


def _maps_all_users() -> bool:
    """Whether every user exists here; a user namespace may have only some."""
    return Path("/proc/self/uid_map").read_text().split()[-1] == str(2**32 - 1)


def test_the_module_that_wipes_is_the_one_beside_the_script() -> None:
    module = spawner._load_wipe_module()
    assert module.__file__ == str(Path(spawner.__file__).with_name("wipe.py"))
    assert isinstance(cast(SimpleNamespace, module).NotClean, type)
