"""Shared memory of a supervised program is gone with it, however it ends; that of others stays."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train import process_supervisor

SHARED = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="POSIX shared memory is elsewhere on this system")

MAP = """
import mmap, pathlib, sys, time
file = pathlib.Path(sys.argv[1])
if not file.exists():
    file.write_bytes(bytes(4096))
with file.open("r+b") as stream:
    memory = mmap.mmap(stream.fileno(), 4096)
print("mapped", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def name() -> Iterator[Path]:
    path = SHARED / f"psm_test_{os.getpid()}_{time.time_ns():x}"
    yield path
    path.unlink(missing_ok=True)


def supervised(name: Path, seconds: float) -> "subprocess.Popen[str]":
    supervisor = [sys.executable, "-P", process_supervisor.__file__, "--grace", "0.1", "--"]
    process = subprocess.Popen(
        [*supervisor, sys.executable, "-c", MAP, str(name), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mapped\n"
    return process


def test_memory_of_a_program_that_is_ended_goes_with_it(name: Path) -> None:
    process = supervised(name, 600)
    assert name.exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert not name.exists()


def test_memory_of_a_program_that_ends_by_itself_goes_with_it(name: Path) -> None:
    process = supervised(name, process_supervisor._LOOK_SECONDS + 2)
    process.communicate(timeout=60)
    assert not name.exists()


def test_memory_that_was_there_before_or_that_others_use_stays(name: Path) -> None:
    name.write_bytes(bytes(4096))
    process = supervised(name, 600)
    process.terminate()
    process.communicate(timeout=30)
    assert name.exists()
    name.unlink()
    process = supervised(name, 600)
    other = subprocess.Popen([sys.executable, "-c", MAP, str(name), "600"], stdout=subprocess.PIPE, text=True)
    with contextlib.ExitStack() as stack:
        stack.callback(other.communicate)
        stack.callback(other.kill)
        assert other.stdout is not None
        assert other.stdout.readline() == "mapped\n"
        process.terminate()
        process.communicate(timeout=30)
        assert name.exists()


def test_looking_takes_no_exit_code(name: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    memory = process_supervisor.SharedMemory()
    name.write_bytes(b"1")
    time.sleep(0.5)
    memory.look()
    assert program.wait(timeout=30) == 7
