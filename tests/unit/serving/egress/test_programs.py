"""Programs as children: waited for until they accept connections, and ended whatever they do."""

import asyncio
import os
import pwd
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from aworld_train.errors import EnvironmentFailure
from aworld_train.serving.egress import programs
from aworld_train.serving.egress.programs import Program, restrict_folder, unprivileged_user

HOST = "127.0.0.1"
LISTEN = "import socket, sys, time; taken = socket.create_server(('127.0.0.1', int(sys.argv[1]))); {}time.sleep(600)"


@pytest.fixture
def port() -> int:
    """A free one."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


@asynccontextmanager
async def started(port: int, first: str = "") -> AsyncIterator[Program]:
    program = Program(["python3", "-c", LISTEN.format(first), str(port)], None)
    await program.start(HOST, port)
    yield program
    await program.stop()


async def test_it_is_started_when_it_accepts_connections(port: int) -> None:
    async with started(port) as program:
        assert program.name == "python3"
        (await asyncio.open_connection(HOST, port))[1].close()
    sleeping = Program(["sleep", "600"], None)
    with socket.create_server((HOST, 0)) as listening:
        await sleeping.start(HOST, listening.getsockname()[1])
        with listening.accept()[0] as connection:
            connection.settimeout(30)
            assert await asyncio.to_thread(connection.recv, 1) == b""  # it does not stay connected
    await sleeping.stop()


async def test_one_that_ends_at_once_or_never_listens_is_told_of(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentFailure, match=r"^sh ended with 7 when it was started\.$"):
        await Program(["sh", "-c", "exit 7"], None).start(HOST, port)
    monkeypatch.setattr(programs, "_START_SECONDS", 0.2)
    silent = Program(["sleep", "600"], None)
    with pytest.raises(EnvironmentFailure, match=rf"^sleep does not listen on {HOST}:{port} after 0\.2 s\.$"):
        await silent.start(HOST, port)
    await silent.stop()
    assert await silent.wait_for_end() == "sleep ended with SIGTERM"


async def test_how_it_ended_is_told_by_its_code_or_signal(port: int) -> None:
    async with started(port) as program:
        os.kill(program.pid, signal.SIGUSR1)
        assert await program.wait_for_end() == "python3 ended with SIGUSR1"
        await program.stop()  # there is nothing left to end


async def test_a_code_of_its_own_is_told_too(port: int) -> None:
    async with started(port, "taken.accept(); sys.exit(3); ") as program:
        assert await program.wait_for_end() == "python3 ended with 3"


@pytest.mark.parametrize(
    ("first", "by"),
    [("", "SIGTERM"), ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); ", "SIGKILL")],
)
async def test_one_that_does_not_end_when_asked_is_killed(
    port: int, monkeypatch: pytest.MonkeyPatch, first: str, by: str
) -> None:
    monkeypatch.setattr(programs, "_END_SECONDS", 30.0 if by == "SIGTERM" else 0.2)
    program = Program(["python3", "-c", first + LISTEN.format(""), str(port)], None)
    await program.start(HOST, port)
    await program.stop()
    assert await program.wait_for_end() == f"python3 ended with {by}"


async def test_one_that_was_not_started_has_nothing_to_end() -> None:
    program = Program(["sleep", "600"], None)
    await program.stop()
    assert program._process is None


def test_it_is_looked_for_where_daemons_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    daemons = ("/usr/sbin", "/sbin")
    found = next(
        (file for folder in daemons for file in Path(folder).iterdir() if os.access(file, os.X_OK)), None
    )
    assert found is not None
    assert Program([found.name], None).name == found.name
    with pytest.raises(
        EnvironmentFailure, match=r"not-there is not installed here \(Debian: `apt-get install"
    ):
        Program(["not-there"], None)


# Rights


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start it as another user")
async def test_as_root_it_is_another_user_without_roots_groups() -> None:
    user = unprivileged_user()
    assert user == "nobody"
    # Not Python, which may lie in a folder of root's; somebody else listens.
    program = Program(["sleep", "600"], user)
    with socket.create_server((HOST, 0)) as listening:
        await program.start(HOST, listening.getsockname()[1])
    rights = psutil.Process(program.pid)
    entry = pwd.getpwnam(user)
    assert set(rights.uids()) == {entry.pw_uid}
    assert set(rights.gids()) == {entry.pw_gid}
    assert groups(program.pid) == ""
    await program.stop()


def groups(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.removeprefix("Groups:").strip() for line in status.splitlines() if "Groups:" in line)


def test_who_is_not_root_stays_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged_user() is None
    assert programs._ids(None) == (None, None, None)


def test_a_folder_is_for_its_programs_only(tmp_path: Path) -> None:
    folder = tmp_path / "egress"
    (folder / "inner").mkdir(parents=True)
    (folder / "rules").write_text("allow")
    for path in (folder, folder / "inner", folder / "rules"):
        path.chmod(0o755)
    restrict_folder(folder)
    modes = [path.stat().st_mode & 0o7777 for path in (folder, folder / "inner", folder / "rules")]
    assert modes == [0o700, 0o700, 0o600]
    owner = unprivileged_user() or pwd.getpwuid(os.geteuid()).pw_name
    assert {path.owner() for path in (folder, *folder.iterdir())} == {owner}
