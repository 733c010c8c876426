"""A wipe: every process of a session and every file, however well hidden, and nothing else.

It ends the processes that descend from the one it runs in: that is never this one, but one made for the test.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.worker import wipe
from aworld_train.serving.worker.wipe import NotClean, empty

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
def test_a_container_in_which_something_is_left_is_not_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    folders = [tmp_path / "memory", tmp_path / "queues"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").touch()
    monkeypatch.setattr(wipe, "container_folders", lambda: (folders[:1], folders[1:]))
    monkeypatch.setattr(wipe, "_SYSV", ())  # other programs of this machine may have some
    wipe.clean_container()
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    (folders[place] / "kept").touch()
    monkeypatch.setattr(wipe, "empty", lambda _: None)
    with pytest.raises(NotClean, match=f"{folders[place]} still has kept"):
        wipe.clean_container()


def test_what_a_session_left_of_system_v_is_removed() -> None:
    result = run("""
        import aworld_train.serving.worker.wipe as wipe_module
        wipe_module.container_folders = lambda: ([], [])
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x08000000):  # CLONE_NEWIPC
            print(json.dumps("skip"))
            sys.exit()
        for _ in range(100):
            libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE; IPC_CREAT and mode 0600
            libc.msgget(0, 0o1600)
            libc.semget(0, 3, 0o1600)
        lists = [Path(f"/proc/sysvipc/{kind}") for kind in ("shm", "msg", "sem")]
        before = [len(one.read_text().splitlines()) for one in lists]
        wipe_module.clean_container()
        print(json.dumps([before, [len(one.read_text().splitlines()) for one in lists]]))
    """)
    if result == "skip":
        pytest.skip("only root may have System V resources of its own here")
    assert result == [[101] * 3, [1] * 3]


@pytest.mark.parametrize("kind", ["shm", "msg", "sem"])
def test_each_kind_of_system_v_is_looked_at(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    lists = dict.fromkeys(("shm", "msg", "sem"), "key id perms\n")
    monkeypatch.setattr(wipe, "container_folders", lambda: ([], []))
    monkeypatch.setattr(Path, "read_text", lambda path: lists[path.name])
    monkeypatch.setattr(wipe, "_remove_system_v", lambda: None)
    wipe.clean_container()
    lists[kind] += "0 7 600\n"
    with pytest.raises(NotClean, match=f"System V {kind} is left"):
        wipe.clean_container()


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


# Which folders

MOUNTS = {
    "/": "overlay rw",
    "/tmp": "tmpfs nosuid,rw",
    "/home/tools": "tmpfs rw",
    "/read-only": "tmpfs ro,nosuid",
    "/root-only": "tmpfs rw",
    "/on-a-disk": "ext4 rw",
    "/dev": "tmpfs rw",
    "/dev/shm": "tmpfs rw",
    "/dev/mqueue": "mqueue rw",
    "/run/aworld": "tmpfs rw",
    "/run/aworld/socket": "tmpfs rw",
    "/proc/acpi": "tmpfs rw",
    "/sys/firmware": "tmpfs rw",
}


def test_a_session_may_leave_files_where_it_may_write_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = []
    for number, (point, described) in enumerate(MOUNTS.items()):
        kind, options = described.split()
        lines.append(f"{number} 1 0:{number} / {point} {options} shared:1 master:2 - {kind} none rw,size=1k")
    monkeypatch.setattr(Path, "read_text", lambda _: "\n".join(lines) + "\n")
    monkeypatch.setattr(wipe, "_is_writable", lambda point: point != "/root-only")
    folders = [Path("/tmp"), Path("/home/tools"), Path("/dev/shm")]
    assert wipe.container_folders() == (folders, [Path("/dev/mqueue")])


@pytest.mark.parametrize(
    ("is_owner", "may_write", "is_writable"),
    [(True, False, True), (False, True, True), (False, False, False), (True, True, True)],
)
def test_a_folder_can_be_written_to_by_its_owner_whatever_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_owner: bool, may_write: bool, is_writable: bool
) -> None:
    def access(path: object, mode: int, *, effective_ids: bool) -> bool:
        assert (path, mode, effective_ids) == (str(tmp_path), os.W_OK, True)
        return may_write

    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner if is_owner else owner + 1)
    monkeypatch.setattr(os, "access", access)
    assert wipe._is_writable(str(tmp_path)) is is_writable


# The folders afterwards


def test_a_folder_can_be_used_as_before_whatever_its_owner_made_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").touch()
    with contextlib.suppress(OSError):  # file systems without extended attributes
        os.setxattr(folder, "user.note", b"left")
    folder.chmod(0o077)
    wipe.clean_folders([folder])
    assert (folder.stat().st_mode & 0o777, list(folder.iterdir())) == (0o700, [])
    assert os.listxattr(folder) == []


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_no_flag_and_no_time_of_a_folder_is_left_to_the_next_session(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wipe, "container_folders", lambda: ([memory_folder], []))
    monkeypatch.setattr(wipe, "_SYSV", ())
    wipe.clean_container()

    def attributes() -> list[int]:
        found = memory_folder.stat()
        return [found.st_mode, found.st_nlink, found.st_size, found.st_atime_ns, found.st_mtime_ns, flags()]

    def flags(value: int | None = None) -> int:
        descriptor = os.open(memory_folder, os.O_RDONLY)
        try:
            if value is not None:
                fcntl.ioctl(descriptor, 0x40086602, struct.pack("=Q", value))  # FS_IOC_SETFLAGS
            return int.from_bytes(
                fcntl.ioctl(descriptor, 0x80086601, bytes(8)), sys.byteorder
            )  # FS_IOC_GETFLAGS
        finally:
            os.close(descriptor)

    before = attributes()
    try:
        flags(0xC0)  # FS_NODUMP_FL, FS_NOATIME_FL
    except OSError:
        pytest.skip("this kernel's tmpfs has no flags")
    os.utime(memory_folder, ns=(1_234_567_890_123_456_789, 987_654_321_012_345_678))
    assert attributes() != before
    wipe.clean_container()
    assert attributes() == before


def test_the_times_of_a_folder_of_another_user_are_those_of_the_wipe(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(memory_folder, ns=(123, 456))
    monkeypatch.setattr(wipe, "container_folders", lambda: ([], [memory_folder]))
    monkeypatch.setattr(wipe, "_SYSV", ())
    monkeypatch.setattr(os, "geteuid", lambda: memory_folder.stat().st_uid + 1)
    wipe.clean_container()
    assert min(memory_folder.stat().st_atime, memory_folder.stat().st_mtime) > 1e9
    monkeypatch.setattr(wipe, "_touch", lambda _: None)
    os.utime(memory_folder, ns=(123, 456))
    with pytest.raises(NotClean, match="has times of a session"):
        wipe.clean_container()


def test_attributes_that_an_owner_may_set_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, removed = ["user.note", "system.posix_acl_access", "security.label"], list[Any]()
    monkeypatch.setattr(os, "listxattr", lambda _: names)
    monkeypatch.setattr(os, "removexattr", lambda *arguments: removed.append(arguments))
    wipe.clean_folders([tmp_path])
    assert removed == [(tmp_path, name) for name in names[:2]]


def test_some_of_the_files_that_are_left_are_named(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / str(number)).touch()
    with pytest.raises(NotClean, match=f"^{tmp_path} still has 0, 1, 2, 3, 4$"):
        wipe._verify_folders([tmp_path])


def test_a_folder_of_another_user_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    wipe.clean_folders([tmp_path])
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_folder_in_which_programs_fail_or_bytes_change_is_not_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", lambda path, data: write(path, data[:-1]))
        with pytest.raises(NotClean, match=f"{tmp_path} cannot be used: what is written there is not"):
            wipe.clean_folders([tmp_path])
    monkeypatch.setattr(wipe, "_TEST_SCRIPT", b"#!/bin/sh\nexit 3\n")
    with pytest.raises(NotClean, match="returned non-zero exit status 3"):
        wipe.clean_folders([tmp_path])
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    wipe.clean_folders([tmp_path])  # no program may be run there


# Processes


def test_processes_that_do_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, wipe._SECONDS, wipe._SECONDS + 1])
    monkeypatch.setattr(wipe, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None))
    monkeypatch.setattr(wipe, "reap_children", list)
    ended: list[set[int]] = []
    with pytest.raises(NotClean, match=r"processes \[3, 5\] do not end"):
        wipe._end_all(lambda: {5, 3}, ended.append)
    assert ended == [{3, 5}]


def test_children_that_ended_are_reaped_and_no_others() -> None:
    result = run("""
        ended = sorted(os.fork() or os._exit(0) for _ in range(2))
        lasting = started()
        while any(map(lives, ended)):
            time.sleep(0.001)
        print(json.dumps([sorted(reap_children()) == ended, reap_children(), lives(lasting)]))
        os.kill(lasting, signal.SIGKILL)
        os.waitpid(lasting, 0)
        assert reap_children() == []
    """)
    assert result == [True, [], True]


def test_in_a_container_one_signal_goes_to_all_until_only_the_spared_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = {1, 7, 8, 9}
    signals: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        signals.append((pid, number))
        if 8 not in processes:
            raise ProcessLookupError  # the other one has ended, and was not reaped yet

    monkeypatch.setattr(wipe, "_all_processes", lambda: processes)
    monkeypatch.setattr(wipe, "reap_children", lambda: processes.remove(8 if 8 in processes else 9))
    monkeypatch.setattr(wipe, "_SECONDS", 1.0)
    monkeypatch.setattr(os, "kill", kill)
    wipe.end_all_but(frozenset({1, 7}))
    assert signals == [(-1, signal.SIGKILL)] * 2
