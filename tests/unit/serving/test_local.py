"""A part of a process environment is kept running, in folders that are empty whenever it starts."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aworld_train.serving import local
from aworld_train.serving.channel import derive_secret
from aworld_train.serving.local import ManagedProcess
from tests.environments import eventually, sleeps


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ManagedProcess]:
    """A process that runs until it is ended."""
    process = ManagedProcess("none", {}, [tmp_path / "worker" / "folder"])
    process._command = ["/bin/sleep", "600"]
    yield process
    process.stop()
    process.end(time.monotonic() + 5)


def kill(process: ManagedProcess) -> None:
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    process.update()


def test_one_that_ends_is_started_again_in_empty_folders(process: ManagedProcess, tmp_path: Path) -> None:
    folder = tmp_path / "worker" / "folder"
    process.stop()
    process.end(0.0)
    process.start_if_due()
    first = process.pid
    (folder / "left").mkdir()
    process.update()
    process.start_if_due()
    assert process.pid == first
    kill(process)
    assert process.pid is None
    process.start_if_due()
    assert process.pid not in (None, first)
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o077 == 0


def test_one_that_keeps_ending_has_to_wait_and_one_that_lasted_has_not(
    process: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    waited = []
    for lasts in (1.0, 1.0, 1.0, 1.0, 20.0, 20.5, 1.0):
        process.start_if_due()
        now += lasts
        kill(process)
        began = now
        process.start_if_due()
        while process.pid is None:
            now += 0.5
            process.start_if_due()
        waited.append(now - began)
    assert waited == [0.0, 0.5, 2.0, 10.0, 10.0, 0.0, 0.5]
    monkeypatch.undo()


def test_one_that_does_not_listen_is_ended_at_the_deadline(process: ManagedProcess, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    process._command = ["/bin/bash", "-c", f"trap '' TERM; touch {deaf}; while true; do sleep 0.1; done"]
    process.start_if_due()
    assert eventually(deaf.exists)
    process.stop()
    child = process._process
    assert child is not None
    process.end(time.monotonic() + 0.5)
    assert child.returncode == -signal.SIGKILL


def test_a_log_that_has_become_long_is_put_aside_and_goes_on_for_who_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    log, old = tmp_path / "log", tmp_path / "log.1"
    local.rotate_log(log, old)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        local.rotate_log(log, old)
        assert not old.exists()
        for letter in (b"b", b"c"):
            writer.write(letter * 50)
            local.rotate_log(log, old)
            writer.write(b"-" * 60)
    assert (log.read_bytes(), old.read_bytes()) == (b"-" * 60, b"-" * 60 + b"c" * 50)
    assert old.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("size", "kept"), [(200, 200), (201, 100), (1100, 100)])
def test_no_more_than_the_end_is_kept_of_a_log_that_has_grown_too_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kept: int
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    content = bytes(number % 256 for number in range(size))
    (tmp_path / "log").write_bytes(content)
    local.rotate_log(tmp_path / "log", tmp_path / "log.1")
    assert ((tmp_path / "log").read_bytes(), (tmp_path / "log.1").read_bytes()) == (b"", content[-kept:])


# The whole of it


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """Starts an environment with one program in place of its gateway and workers; returns its pid."""
    folder, started = tmp_path / "private", list[int]()
    folder.mkdir()

    def start(script: str) -> int:
        process = ManagedProcess("none", {"PATH": "/usr/bin:/bin"}, [])
        process._command = ["/bin/sh", "-c", script]
        settings = {"folder": str(folder), "log": str(tmp_path / "log"), "old_log": str(tmp_path / "old")}
        monkeypatch.setenv("AWORLD_LOCAL", json.dumps(settings))
        monkeypatch.setattr(local, "_processes", lambda *_: [process])
        monkeypatch.setattr(local, "_STOP_SECONDS", 30.0)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                local.main()
                code = 0
            finally:
                os._exit(code)
        started.append(pid)
        return pid

    yield start
    for pid in started:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def pid_in(file: Path) -> int:
    """The pid that a program writes to a file."""
    assert eventually(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_all_and_leaves_no_folder(
    environment: Callable[[str], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    folder = tmp_path / "private"
    (folder / "kept").mkdir()
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 3)
    (tmp_path / "log").write_text("long")
    end = f"trap 'sleep 0.2; touch {tmp_path}/told; exit' TERM"
    script = f"{end}; setsid sleep 600 & echo $! > {tmp_path}/orphan; echo $$ > {tmp_path}/own; wait"
    pid = environment(script)
    programs = [pid_in(tmp_path / name) for name in ("orphan", "own")]
    os.kill(pid, number)
    assert os.waitpid(pid, 0)[1] == 0
    assert [has_ended(program) for program in programs] == [True, True]
    assert (folder.exists(), (tmp_path / "told").exists()) == (False, True)
    assert ((tmp_path / "log").read_text(), (tmp_path / "old").read_text()) == ("", "long")


def test_what_a_program_that_died_left_running_ends_before_it_is_started_again(
    environment: Callable[[str], int], tmp_path: Path
) -> None:
    # The second one lives, and says whether what the first one left was still there.
    first = f"setsid sleep 600 & echo $! > {tmp_path}/orphan; kill -9 $$"
    second = (
        f"test -e /proc/$(cat {tmp_path}/orphan) && state=there || state=gone; echo $state > {tmp_path}/state"
    )
    environment(f"test -e {tmp_path}/orphan || {{ {first}; }}; {second}; exec sleep 600")
    assert eventually(lambda: (tmp_path / "state").exists() and (tmp_path / "state").read_text())
    assert (tmp_path / "state").read_text() == "gone\n"


def test_its_programs_end_with_it_however_it_ends(environment: Callable[[str], int], tmp_path: Path) -> None:
    pid = environment(f"echo $$ > {tmp_path}/own; exec sleep 600")
    program = pid_in(tmp_path / "own")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert eventually(lambda: has_ended(program))


def test_it_sleeps_while_nothing_happens(environment: Callable[[str], int], tmp_path: Path) -> None:
    pid = environment(f"echo $$ > {tmp_path}/own; exec sleep 600")
    pid_in(tmp_path / "own")
    assert sleeps(pid)


def test_children_that_are_not_spared_are_ended_and_leave_nothing() -> None:
    before = local._children()
    spared, stray = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    local._end_strays({*before, spared.pid, None})
    assert not Path(f"/proc/{stray.pid}").exists()
    assert (local._children() - before, stray.poll()) == ({spared.pid}, 0)
    spared.kill()
    spared.wait()


@pytest.mark.parametrize("has_list", [True, False])
def test_children_are_found_in_any_kernel(monkeypatch: pytest.MonkeyPatch, has_list: bool) -> None:
    if not has_list:
        monkeypatch.setattr(local, "Path", lambda _: Path("/proc/none"))
    child = subprocess.Popen(["sleep", "600"])
    try:
        assert child.pid in local._children()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in local._children()


def test_each_process_gets_what_it_may_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, object] = {
        **{name: name for name in ("name", "host", "egress", "manifest", "python", "here")},
        **{"port": 7, "limits": {"queue": 3}, "scoring": 1, "workers": 2, "servers": ["a"]},
    }
    secret = {"AWORLD_SECRET": "the secret", "AWORLD_LOCAL": "settings", "A_KEY": "key"}
    public = {"PATH": "/bin", "PYTHONPATH": "/code", "LANG": "C"}
    monkeypatch.setattr(os, "environ", secret | public)
    gateway, *workers = local._processes(settings, tmp_path)
    variables = gateway._variables
    assert variables.keys() == {*public, "AWORLD_GATEWAY", "AWORLD_SECRET"}
    sockets = [str(tmp_path / name / "run" / "worker.sock") for name in ("0", "1")]
    assert json.loads(variables["AWORLD_GATEWAY"]) == {
        **{name: settings[name] for name in ("name", "host", "port", "limits", "scoring", "egress")},
        "revoked": str(tmp_path / "revoked.json"),
        "sockets": sockets,
    }
    assert gateway._folders == [] and gateway._command[-1] == "aworld_train.serving.env_gateway"
    for number, worker in enumerate(workers):
        own = tmp_path / str(number)
        folders = [own / name for name in ("workspace", "home", "tmp")]
        assert worker._folders == [own / "run", *folders]
        assert worker._command[-1] == "aworld_train.serving.worker"
        variables = dict(worker._variables)
        assert json.loads(variables.pop("AWORLD_WORKER")) == {
            **{name: settings[name] for name in ("manifest", "python", "here", "servers")},
            **dict.fromkeys(("user", "own_user", "egress")),
            "socket": sockets[number],
            "workspace": str(folders[0]),
            "folders": [str(folder) for folder in folders],
            "desktop": False,
        }
        assert variables == {
            **public,
            "A_KEY": "key",
            "HOME": str(folders[1]),
            "TMPDIR": str(folders[2]),
            "AWORLD_CHANNEL": derive_secret("the secret", number),
        }
    assert len(workers) == 2
