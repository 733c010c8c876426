"""The program in an interpreter's place ends as its fork does, and is an interpreter where there is none."""

import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.adapter.verl.fork_client import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    STAND_IN,
    STARTED,
    STATUS_BYTES,
)

SECONDS = 120
KEY = b"k" * 64
PROGRAM = ("-c", "print('an interpreter', flush=True); raise SystemExit(5)")


class Answering:
    """Answers one request with these bytes, and keeps it."""

    def __init__(self, folder: Path, answer: bytes):
        self.address = folder / "forks"
        self.request: tuple[bytes, Any, list[str]] | None = None
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.address))
        self._listener.listen()
        self._listener.settimeout(SECONDS)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            connection.settimeout(SECONDS)
            head, streams, *_ = socket.recv_fds(connection, len(KEY) + 4, 8)
            content = b""
            while len(content) < int.from_bytes(head[len(KEY) :], "big"):
                content += connection.recv(1 << 16)
            files = [str(Path(f"/proc/self/fd/{number}").readlink()) for number in streams]
            for number in streams:
                os.close(number)
            self.request = (head[: len(KEY)], marshal.loads(content), files)
            connection.sendall(self._answer)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "key").write_bytes(KEY)
    yield {"ONE": "1", KEY_VARIABLE: str(tmp_path / "key"), ADDRESS_VARIABLE: str(tmp_path / "forks")}


def ask(folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The code with which a client ends, and its output."""
    done = subprocess.run(
        [*STAND_IN, *PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (3 << 8, 3),
        (0, 0),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGKILL, -signal.SIGKILL),
        (None, -signal.SIGKILL),
    ],
)
def test_a_client_ends_as_the_process_that_was_made_for_it_or_is_killed_with_the_server(
    tmp_path: Path, environment: dict[str, str], status: int | None, code: int
) -> None:
    server = Answering(tmp_path, STARTED + (b"" if status is None else status.to_bytes(STATUS_BYTES, "big")))
    assert ask(tmp_path, environment) == (code, "")
    server.thread.join(SECONDS)
    assert server.request is not None
    key, (arguments, directory, variables), streams = server.request
    assert (key, arguments, os.fsdecode(directory)) == (KEY, list(PROGRAM), str(tmp_path))
    assert {
        os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()
    }.items() >= environment.items()
    assert len(streams) == 3 and all(name.startswith("pipe:") for name in streams[1:])


@pytest.mark.parametrize("answer", [b"", b"\0"])
def test_a_client_that_is_refused_is_the_interpreter(
    tmp_path: Path, environment: dict[str, str], answer: bytes
) -> None:
    server = Answering(tmp_path, answer)
    assert ask(tmp_path, environment) == (5, "an interpreter\n")
    server.thread.join(SECONDS)


@pytest.mark.parametrize("lacking", [ADDRESS_VARIABLE, KEY_VARIABLE, "a server", "the key"])
def test_without_a_server_it_is_the_interpreter(
    tmp_path: Path, environment: dict[str, str], lacking: str
) -> None:
    environment.pop(lacking, None)
    if lacking == "the key":
        (tmp_path / "key").unlink()
    assert ask(tmp_path, environment) == (5, "an interpreter\n")


def test_the_stand_in_imports_nothing_of_the_user_s() -> None:
    assert STAND_IN[:3] == (sys.executable, "-I", "-S")
