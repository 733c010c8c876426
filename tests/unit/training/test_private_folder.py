"""A start's private folder keeps other users out, and does not stay behind."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.training import private_folder as private_module
from aworld_train.training.private_folder import RECORD, private_folder
from aworld_train.training.process import run_guarded

NOBODY = 65534


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders are made instead of /tmp: a directory that everybody may enter and write to."""
    folder = tmp_path / "parent"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(private_module, "_PARENT", folder)
    return folder


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_start_has_a_folder_of_its_own_as_long_as_it_lasts(run_dir: Path) -> None:
    with private_folder(run_dir) as private:
        assert mode(private) == 0o700
        assert mode(run_dir / RECORD) == 0o600
    assert not private.exists()
    assert not (run_dir / RECORD).exists()


def test_two_starts_share_neither_name_nor_secrets(run_dir: Path) -> None:
    starts = []
    for _ in range(2):
        with private_folder(run_dir) as private:
            files = PrivateFolder(private)
            files.fill()
            starts.append((private, files.token.read_text(), files.queue_key.read_text()))
    assert all(first != second for first, second in zip(*starts, strict=True))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_reach_into_it(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A test's own directories are closed to others, wherever they are.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        parent = Path(directory)
        parent.chmod(0o1777)
        monkeypatch.setattr(private_module, "_PARENT", parent)
        with private_folder(run_dir) as private:
            files = PrivateFolder(private)
            files.fill()
            files.ray.chmod(0o777)  # as Ray does
            reached = as_another_user(
                {
                    "the directory around it": lambda: list(parent.iterdir()),
                    "the folder": lambda: list(private.iterdir()),
                    "the token": files.token.read_text,
                    "Ray's folder": lambda: list(files.ray.iterdir()),
                    "a new file": (files.ray / "x").touch,
                    "another token": lambda: files.token.rename(private / "old"),
                }
            )
    assert reached == {"the directory around it"}


def as_another_user(attempts: dict[str, Callable[[], object]]) -> set[str]:
    """The names of the attempts that succeed for a user without rights."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        for name, attempt in attempts.items():
            try:
                attempt()
                os.write(write_end, f"{name}\n".encode())
            except PermissionError:
                continue
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        succeeded = set(stream.read().splitlines())
    assert os.waitpid(child, 0)[1] == 0
    return succeeded


START = """
import os, signal, sys
from pathlib import Path
from aworld_train.training import private_folder as private
private._PARENT = Path(sys.argv[1])
with private.private_folder(Path(sys.argv[2])) as folder:
    (folder / "token").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_start_left_is_removed_by_the_next(run_dir: Path, parent: Path) -> None:
    subprocess.run([sys.executable, "-c", START, str(parent), str(run_dir)])
    (left,) = parent.iterdir()
    assert (left / "token").exists()
    with private_folder(run_dir) as private:
        assert list(parent.iterdir()) == [private]
        assert private != left
    assert list(parent.iterdir()) == []


def test_a_record_that_names_something_else_removes_nothing(
    run_dir: Path, parent: Path, tmp_path: Path
) -> None:
    """A run folder may come from somebody else."""
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").touch()
    (parent / "aworld-linklinklinkli-k").symlink_to(precious)
    shared = parent / "aworld-0123456789abcdef"
    shared.mkdir()
    shared.chmod(0o777)
    other = parent / "somebody"
    other.mkdir(mode=0o700)
    names = ("../precious", str(precious), "aworld-linklinklinkli-k", shared.name, other.name, "", "\0", ".")
    for name in names:
        (run_dir / RECORD).write_text(name)
        with private_folder(run_dir):
            pass
        assert (precious / "file").exists()
        assert shared.is_dir()
        assert other.is_dir()


OWNER = """
import sys
from pathlib import Path
from aworld_train.training.process import run_guarded
run_guarded(
    [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
    environment={}, cwd=Path("/"), log=Path(sys.argv[1]), watch=lambda: None, remove=Path(sys.argv[2]),
)
"""


def test_the_folder_goes_also_where_the_command_is_killed(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "folder"
    folder.mkdir()
    (folder / "token").touch()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(log), str(folder)])
    try:
        wait_for(lambda: log.exists() and "up" in log.read_text())
        assert folder.exists()
    finally:
        owner.kill()
        owner.wait()
    wait_for(lambda: not folder.exists())


def test_the_folder_goes_at_the_end_of_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run_guarded(
        [sys.executable, "-c", ""],
        environment=os.environ,
        cwd=tmp_path,
        log=tmp_path / "log",
        watch=lambda: None,
        every=0.1,
        remove=folder,
    )
    assert not folder.exists()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.05)
