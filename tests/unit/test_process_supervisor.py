"""A process is told from others by what neither the system clock nor another process with its pid changes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aworld_train import process_supervisor
from aworld_train.env.containers import _process
from aworld_train.process_supervisor import ProcessIdentity
from tests.environments import sleeps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux moves creation times with its clock")


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def move_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let psutil find that this machine was booted at another time, as after the system clock was set."""
    boot = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + seconds)
    monkeypatch.setattr("psutil._pslinux.BOOT_TIME", None, raising=False)


def test_a_process_is_found_after_the_clock_was_moved(
    monkeypatch: pytest.MonkeyPatch, sleeper: "subprocess.Popen[bytes]"
) -> None:
    identity, created = ProcessIdentity.of(sleeper.pid), psutil.Process(sleeper.pid).create_time()
    move_clock(monkeypatch, 3600)
    assert psutil.Process(sleeper.pid).create_time() == pytest.approx(created + 3600)
    found = identity.find()
    assert found is not None
    assert found.pid == sleeper.pid
    assert ProcessIdentity.of(sleeper.pid) == identity == ProcessIdentity.read(str(identity))


@pytest.mark.parametrize("later", ["ticks", "boot"])
def test_another_process_with_the_same_pid_is_not_found(
    sleeper: "subprocess.Popen[bytes]", later: str
) -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    boot, namespace, ticks = identity.started.split("/")
    other = f"{boot}/{namespace}/{int(ticks) - 1}" if later == "ticks" else f"another/{namespace}/{ticks}"
    assert ProcessIdentity(sleeper.pid, other).find() is None
    assert not ProcessIdentity(sleeper.pid, other).is_elsewhere


def test_a_process_that_has_ended_is_not_found(sleeper: "subprocess.Popen[bytes]") -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert identity.find() is None  # a zombie
    sleeper.wait()
    assert identity.find() is None
    with pytest.raises(psutil.NoSuchProcess):
        ProcessIdentity.of(sleeper.pid)


def test_a_process_of_another_container_is_elsewhere_and_not_ended() -> None:
    boot, namespace, ticks = ProcessIdentity.of(os.getpid()).started.split("/")
    assert ProcessIdentity(1, f"{boot}/{int(namespace) + 1}/{ticks}").is_elsewhere
    assert not ProcessIdentity(1, f"{boot}/{namespace}/{ticks}").is_elsewhere


def test_where_there_is_no_proc_the_time_of_creation_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_supervisor.sys, "platform", "darwin")
    own = ProcessIdentity.of(os.getpid())
    assert own.started == f"unix/{psutil.Process().create_time()!r}"
    assert own.find() == psutil.Process()
    assert not own.is_elsewhere


@pytest.mark.parametrize("text", ["", "7", "7 1700000000.5", "x unix/1.5", "7 unix/1.5 8"])
def test_what_names_no_process_is_refused_and_in_a_label_unknown(text: str) -> None:
    with pytest.raises(ValueError):
        ProcessIdentity.read(text)
    assert _process(text) is None


def test_a_command_runs_on_when_the_clock_is_moved_and_ends_with_its_owner(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    moved = tmp_path / "sitecustomize.py"
    moved.write_text(
        "import psutil._pslinux as linux\nboot = linux.boot_time()\nlinux.boot_time = lambda: boot + 3600\n"
    )
    supervised = subprocess.Popen(
        [
            *(sys.executable, process_supervisor.__file__, f"--owner={ProcessIdentity.of(sleeper.pid)}"),
            *("--", sys.executable, "-c", "print('begun', flush=True); import time; time.sleep(600)"),
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert supervised.stdout is not None
    assert supervised.stdout.readline() == b"begun\n"
    sleeper.kill()
    sleeper.wait()
    assert supervised.stdout.read() == b""
    assert supervised.wait() != 0


@pytest.mark.parametrize("has_owner", [True, False])
def test_it_sleeps_while_nothing_happens_whatever_there_is_to_watch(
    sleeper: "subprocess.Popen[bytes]", has_owner: bool
) -> None:
    owner = [f"--owner={ProcessIdentity.of(sleeper.pid)}"] if has_owner else []
    command = [sys.executable, process_supervisor.__file__, *owner, "--", "sh", "-c", "echo begun; sleep 600"]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"begun\n"
    assert sleeps(supervisor.pid)
    supervisor.terminate()
    supervisor.wait()
    supervisor.stdout.close()
