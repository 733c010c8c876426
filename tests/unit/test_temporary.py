"""Temporary folders of killed processes are found; those of living ones, of others and kept ones are not touched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aworld_train import temporary
from aworld_train.env import clean_leftovers, registry
from aworld_train.env.record import Credentials, Record

PROGRAM = """
import sys, time
from aworld_train import temporary
folder = temporary.make("test")
(folder / "deep").mkdir()
(folder / "deep" / "file").write_text("x")
print(folder, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of this test alone; what others have in /tmp is not looked at."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(temporary, "PARENTS", (str(folder),))
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "state"))
    return folder


def killed_process_s_folder() -> Path:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert list(temporary.abandoned()) == []
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    return folder


def test_the_folder_of_a_killed_process_is_removed() -> None:
    folder = killed_process_s_folder()
    assert list(temporary.abandoned()) == [folder]
    assert clean_leftovers() == [folder]
    assert not folder.exists()
    assert clean_leftovers() == []


def test_a_folder_in_use_or_released_or_somebody_else_s_stays(place: Path) -> None:
    mine, given_up = temporary.make("test"), temporary.make("eval")
    temporary.release(given_up)
    stranger = place / "aworld-other"
    stranger.mkdir(mode=0o755)
    (stranger / temporary.LOCK).touch()
    link = place / "aworld-link"
    link.symlink_to(place.parent)
    (place.parent / temporary.LOCK).touch()
    assert clean_leftovers() == []
    assert all(path.exists() for path in (mine, given_up, stranger, link))
    temporary.remove(mine)
    assert not mine.exists()


def test_a_lock_that_is_a_link_opens_nothing(place: Path) -> None:
    folder = place / "aworld-trap"
    folder.mkdir(mode=0o700)
    target = place / "precious"
    target.write_text("x")
    (folder / temporary.LOCK).symlink_to(target)
    assert list(temporary.abandoned()) == []


def test_the_folder_of_an_environment_with_a_record_stays() -> None:
    folder = killed_process_s_folder()
    credentials = Credentials("s", "t", 0, 0)
    record = Record(
        "tools",
        "process",
        "127.0.0.1",
        1,
        1,
        credentials,
        "d",
        "f",
        "m",
        None,
        True,
        handle={"folder": str(folder)},
    )
    registry.write(record)
    assert clean_leftovers() == [] and folder.exists()
    registry.remove("tools")
    assert clean_leftovers() == [folder]


def test_logs_of_environments_are_removed_a_week_after_they_went_down() -> None:
    old, young = registry.log_path("old"), registry.log_path("young")
    for log in (old, young):
        log.write_text("x")
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(old, (week_ago, week_ago))
    # As one that another start removes between the listing and the look at it.
    registry.log_path("gone").symlink_to("nowhere")
    assert clean_leftovers() == [old]
    assert young.exists()
