"""A PostgreSQL server of its own for tests, on a free port of the loopback, which can be killed and started again."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.egress import free_port

NEED = "AWORLD_TRAIN_TESTS_NEED_POSTGRES"


def programs_or_skip() -> Path:
    """The folder of PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and (initdb := shutil.which("initdb")):
        found.append(Path(initdb).resolve())
    if found:
        return found[-1].parent
    reason = "PostgreSQL is not installed (Debian: postgresql)"
    if os.environ.get(NEED):
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresServer:
    """A server with the database ``aworld``; as root it runs as the user ``postgres``, since it refuses root."""

    def __init__(self) -> None:
        self._programs = programs_or_skip()
        self._user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self._folder = Path(tempfile.mkdtemp(prefix="aworld-postgres-", dir="/tmp"))
        if os.getuid() == 0:
            shutil.chown(self._folder, self._user)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._folder / "data"), "-A", "trust", "-U", "aworld", "--no-sync")
        self.start()
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "aworld", "aworld")

    @property
    def url(self) -> str:
        """The database's address."""
        return f"postgresql://aworld@127.0.0.1:{self._port}/aworld"

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = ("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._folder}")
        # In the data folder, not in /dev/shm, where a crash leaves them.
        options += ("-c", "dynamic_shared_memory_type=mmap")
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), "-p", str(self._port)]
        with (self._folder.with_suffix(".log")).open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user([*command, *options]), stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 60
        ready = [str(self._programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self._port), "-q"]
        while subprocess.run(ready, check=False).returncode:
            assert self._process.poll() is None and time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.1)

    def crash(self) -> None:
        """End it as a crash does: nothing is written any more."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
        )
        for each in (pid, *map(int, children.stdout.split())):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert self._process is not None
        self._process.wait(timeout=30)

    def close(self) -> None:
        """End it and remove its files."""
        if self._process is not None and self._process.poll() is None:
            self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.with_suffix(".log").unlink(missing_ok=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._as_user([str(self._programs / program), *arguments]),
            capture_output=True,
            text=True,
            cwd="/tmp",
        )
        assert not done.returncode, done.stderr

    def _as_user(self, command: list[str]) -> list[str]:
        return ["runuser", "-u", self._user, "--", *command] if os.getuid() == 0 else command
