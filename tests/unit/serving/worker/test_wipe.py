"""A wipe: every process of a session and every file, however well hidden, and nothing else.

It ends the processes that descend from the one it runs in: that is never this one, but one made for the test.
"""

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.worker.wipe import empty

PROGRAM = """
import ctypes, json, os, signal, subprocess, sys, time
from pathlib import Path
from aworld_train.serving.worker.wipe import SharedResources, NotClean, reap_children, verify, wipe

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as a worker: what is left behind becomes its child
folders = tuple(map(Path, sys.argv[1:]))

def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

def started(*before):
    lines = [*before, "print(flush=True)", "import time", "time.sleep(600)"]
    process = subprocess.Popen([sys.executable, "-c", ";".join(lines)], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.returncode = 0  # it is buried by the wipe
    return process.pid

"""


def run(program: str, *folders: Path) -> Any:
    """What a process of its own prints as JSON."""
    command = [sys.executable, "-c", PROGRAM + textwrap.dedent(program), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_process_is_ended_but_those_spared() -> None:
    result = run("""
        spared = started()
        others = [
            started(),
            started("import os", "os.setsid()"),
            started("import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
        ]
        stopped = started()
        os.kill(stopped, signal.SIGSTOP)
        # Left behind by a parent that ended: it was put into a session of its own.
        leave = ["bash", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"]
        left = int(subprocess.run(leave, capture_output=True).stdout)
        # A tree, of which the root is ended first.
        root = subprocess.Popen(["bash", "-c", "bash -c 'sleep 600; true' & echo $!; wait"], stdout=subprocess.PIPE)
        branch = int(root.stdout.readline())
        root.returncode = 0
        ended = [*others, stopped, left, root.pid, branch]
        before = [lives(pid) for pid in [spared, *ended]]
        wipe(SharedResources((), frozenset({os.getpid(), spared})))
        print(json.dumps([before, lives(spared), [lives(pid) for pid in ended]]))
        os.kill(spared, signal.SIGKILL)
    """)
    assert result == [[True] * 8, True, [False] * 7]


def test_processes_of_others_are_left_alone() -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        assert (
            run("""
            one = started()
            wipe(SharedResources((), frozenset({os.getpid()})))
            print(json.dumps(lives(one)))
        """)
            is False
        )
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_spared_process_that_was_stopped_goes_on() -> None:
    state = run("""
        spared = started()
        os.kill(spared, signal.SIGSTOP)
        wipe(SharedResources((), frozenset({os.getpid(), spared})))
        time.sleep(0.1)
        print(json.dumps(Path(f"/proc/{spared}/stat").read_text().rpartition(")")[2].split()[0]))
        os.kill(spared, signal.SIGKILL)
    """)
    assert state == "S"


def test_folders_are_emptied_and_kept(tmp_path: Path) -> None:
    folders = [tmp_path / "workspace", tmp_path / "home"]
    outside = tmp_path / "outside"
    for folder in (*folders, outside):
        folder.mkdir()
        (folder / "file").write_text("x")
    fill(folders[0], outside)
    run(
        """
        wipe(SharedResources(folders, frozenset({os.getpid()})))
        print(json.dumps("wiped"))
        """,
        *folders,
    )
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert [path.name for path in outside.iterdir()] == ["file"]


def fill(folder: Path, outside: Path) -> None:
    """Everything that a folder can hold."""
    (folder / ".hidden" / "deep" / "deeper").mkdir(parents=True)
    (folder / ".hidden" / "deep" / "deeper" / "file").write_text("x")
    closed = folder / "closed"
    (closed / "inside" / "more").mkdir(parents=True)
    (closed / "inside" / "file").write_text("x")
    (closed / "inside").chmod(0)
    closed.chmod(0)
    (folder / "to-a-folder").symlink_to(outside)
    (folder / "to-a-file").symlink_to(outside / "file")
    (folder / "to-nothing").symlink_to("nowhere")
    (folder / ".hidden" / "to-a-folder").symlink_to(outside)
    os.link(outside / "file", folder / "linked")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    (folder / "a\nline \udc80").write_text("x")
    (folder / "big").write_bytes(bytes(1 << 20))


@pytest.mark.parametrize(
    ("left", "pattern"),
    [("(folders[0] / 'kept').touch()", "still has kept"), ("started()", r"processes \[")],
)
def test_what_is_left_is_seen(tmp_path: Path, left: str, pattern: str) -> None:
    error_message = run(
        f"""
        resources = SharedResources(folders, frozenset({{os.getpid()}}))
        verify(resources)
        {left}
        try:
            verify(resources)
        except NotClean as reason:
            print(json.dumps(str(reason)))
        wipe(resources)
        """,
        tmp_path,
    )
    assert re.search(pattern, error_message)


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        ("wipe_module.empty = lambda folder: None", "still has kept"),
        ("wipe_module.end_processes = lambda resources: None", r"processes \[[0-9]+\] are left"),
        ("wipe_module.clean_folders = lambda folders: None", "still has kept"),
    ],
)
def test_a_wipe_that_leaves_something_fails(tmp_path: Path, fault: str, pattern: str) -> None:
    error_message = run(
        f"""
        import aworld_train.serving.worker.wipe as wipe_module
        pid = started()
        (folders[0] / "kept").touch()
        {fault}
        try:
            wipe(SharedResources(folders, frozenset({{os.getpid()}})))
        except NotClean as reason:
            print(json.dumps(str(reason)))
        finally:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        """,
        tmp_path,
    )
    assert re.search(pattern, error_message)


@pytest.mark.parametrize("place", [0, 1], ids=["in memory", "of message queues"])
def test_a_container_in_which_something_is_left_is_not_clean(tmp_path: Path, place: int) -> None:
    folders = [tmp_path / "memory", tmp_path / "queues"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").touch()
    error_messages = run(
        f"""
        import aworld_train.serving.worker.wipe as wipe_module
        wipe_module.container_folders = lambda: (folders[:1], folders[1:])
        wipe_module._SYSV = ()  # other programs of this machine may have some
        wipe_module.clean_container()
        left = [list(map(str, folder.iterdir())) for folder in folders]
        (folders[{place}] / "kept").touch()
        wipe_module.empty = lambda folder: None
        try:
            wipe_module.clean_container()
        except NotClean as reason:
            print(json.dumps([left, str(reason)]))
        """,
        *folders,
    )
    assert error_messages == [[[], []], f"{folders[place]} still has kept"]


def test_system_v_memory_that_is_left_is_seen() -> None:
    error_message = run("""
        import aworld_train.serving.worker.wipe as wipe_module
        wipe_module.container_folders = lambda: ([], [])
        libc = ctypes.CDLL(None)
        segment = libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE; IPC_CREAT and mode 0600
        try:
            wipe_module.clean_container()
        except NotClean as reason:
            print(json.dumps(str(reason)))
        finally:
            libc.shmctl(segment, 0, None)  # IPC_RMID
    """)
    assert error_message == "System V shm is left"


names = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=4
).filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) < 200)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none(), lambda inside: st.dictionaries(names, inside, max_size=3), max_leaves=12
)


@given(st.dictionaries(names, trees, max_size=4), st.integers(0, 0o777))
def test_any_tree_is_emptied(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any], mode: int
) -> None:
    folder = tmp_path_factory.mktemp("tree")

    def plant(place: Path, inside: dict[str, Any]) -> None:
        for name, content in inside.items():
            if content is None:
                (place / name).write_text("x")
            else:
                (place / name).mkdir()
                plant(place / name, content)
                (place / name).chmod(mode)

    plant(folder, tree)
    empty(folder)
    assert list(folder.iterdir()) == []
    folder.rmdir()


def test_a_folder_of_any_depth_is_emptied(tmp_path: Path) -> None:
    dig = "import os\nfor _ in range(5000):\n os.mkdir('d'); open('f', 'w').close(); os.chdir('d')"
    subprocess.run([sys.executable, "-c", dig], cwd=tmp_path, check=True)
    empty(tmp_path)
    assert list(tmp_path.iterdir()) == []
