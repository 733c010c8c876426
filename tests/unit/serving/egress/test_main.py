"""The egress's program: both programs run, workers' sockets lead to Squid, and what it logs is counted and told."""

import asyncio
import json
import os
import signal
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pytest

from aworld_train.errors import EnvironmentFailure
from aworld_train.serving.egress import __main__ as program
from aworld_train.serving.egress.programs import unprivileged_user
from aworld_train.serving.egress.settings import ProxyUser, Settings

WITHIN = 30.0
ACCOUNT = ProxyUser("web", "sixteen or more characters", True, ())


class Running:
    """Stands for Squid and Unbound: what was started, and the end of the one that ends."""

    started: ClassVar[list[tuple[str, str, int, str | None]]] = []
    stopped: ClassVar[list[str]] = []
    ends: "asyncio.Future[str]"

    def __init__(self, command: list[str], user: str | None):
        self.name, self._user = command[0], user

    async def start(self, host: str, port: int) -> None:
        self.started.append((self.name, host, port, self._user))

    async def wait_for_end(self) -> str:
        return await self.ends if self.name == "squid" else await asyncio.Future()

    async def stop(self) -> None:
        self.stopped.append(self.name)


async def counted(path: Path) -> object:
    """What the gateway reads."""
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as http, http.get("http://egress/counts") as answer:
        assert answer.status == 200
        return await answer.json()


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WITHIN):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the files of both programs were made from: the port for the log, name servers, the user; and the folder."""
    arguments: list[Any] = []
    monkeypatch.setattr(program, "Program", Running)
    monkeypatch.setattr(program, "write_files", lambda _, __, *more: arguments.extend(more))
    monkeypatch.setattr(program, "restrict_folder", arguments.append)
    Running.started, Running.stopped = [], []
    return arguments


@pytest.mark.parametrize("ends", [True, False], ids=["Squid ends again and again", "it is told to end"])
async def test_it_counts_and_forwards_until_a_program_ends_too_often_or_it_is_told(
    tmp_path: Path, written: list[Any], capsys: pytest.CaptureFixture[str], ends: bool
) -> None:
    requests: list[bytes] = []

    async def squid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.write(b"answered\n")
        writer.close()

    listening = await asyncio.start_server(squid, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    worker, counts = tmp_path / "worker", tmp_path / "counts"
    worker.touch()  # of an earlier run
    settings = Settings((ACCOUNT,), (), (str(worker),), str(counts), ("9.9.9.9",), port, "127.0.0.5")
    os.umask(umask := os.umask(0))
    Running.ends = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(WITHIN), listening:
        serving = asyncio.create_task(program._run(settings))

        async def is_up() -> bool:
            return counts.exists() and worker.is_socket()

        await until(is_up)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (worker, counts)] == [0o600, 0o600]
        log_port, *more, folder = written
        assert more == [("9.9.9.9",), unprivileged_user() or ""] and folder.is_dir()
        assert [one[:3] for one in Running.started] == [
            ("unbound", "127.0.0.5", 53),
            ("squid", "127.0.0.1", port),
        ]
        assert [one[3] for one in Running.started] == [None, unprivileged_user()]

        reader, writer = await asyncio.open_unix_connection(str(worker))
        writer.write(b"CONNECT\n")
        assert (await reader.readline(), requests) == (b"answered\n", [b"CONNECT\n"])

        log_reader, log = await asyncio.open_connection("127.0.0.1", log_port)
        log.write(b"200 - - 1 2 web GET 80 a.org\r\nno line\n403 ERR host 3 4 web GET 80 b.org\n")
        log.write(b"407 ERR - 0 5 - GET 80 c.org\n")

        async def all_are_counted() -> bool:
            return await counted(counts) == {
                "requests": {"web": {"ok": 1, "refused_host": 1}, "-": {"refused_credentials": 1}},
                "bytes": {"web": {"sent": 4, "received": 6}, "-": {"sent": 0, "received": 5}},
                "restarts": 0,
            }

        await until(all_are_counted)
        log.write_eof()
        assert await log_reader.read() == b""
        if ends:
            Running.ends.set_result("squid ended with 9")
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == int(ends)
        assert await reader.read() == b""
        for path in (worker, counts):
            with pytest.raises(OSError, match=r"refused|No such file"):
                await asyncio.open_unix_connection(str(path))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", log_port)
    log.close()
    writer.close()
    assert os.umask(umask) == umask
    assert not folder.exists()
    log_lines = capsys.readouterr().err.splitlines()
    assert log_lines[:3] == [
        "1 servers have egress, through 1 sockets.",
        "refused_host web b.org:80",
        "refused_credentials - c.org:80",
    ]
    restarts = [f"squid ended with 9; it is started again (restart {number})." for number in range(1, 6)]
    end = "The egress ends: squid ended with 9, after 5 restarts within a minute."
    assert log_lines[3:] == ([*restarts, end] if ends else [])
    assert [one[0] for one in Running.started[2:]] == (["squid"] * 5 if ends else [])
    assert Running.stopped == ["squid", "unbound"]


def test_name_servers_are_those_of_the_settings_or_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resolv.conf"
    monkeypatch.setattr(program, "_RESOLV_CONF", file)
    file.write_text(
        "# nameserver 1.2.3.4\nnameserver\nsearch a.org\nnameserver 9.9.9.9 more\nnameserver fd00::1\n"
    )
    assert program._nameservers(Settings((), (), (), "", ("8.8.8.8",))) == ("8.8.8.8",)
    assert program._nameservers(Settings((), (), (), "")) == ("9.9.9.9", "fd00::1")
    file.write_text("search a.org\n")
    with pytest.raises(EnvironmentFailure, match="names no name server, and the settings name none"):
        program._nameservers(Settings((), (), (), ""))


@pytest.mark.parametrize("text", [None, "{", "{}", '{"servers": {"a": {"password": "short"}}}'])
def test_settings_that_cannot_be_used_end_it(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.delenv("AWORLD_EGRESS", raising=False)
    if text is not None:
        monkeypatch.setenv("AWORLD_EGRESS", text)
    with pytest.raises(SystemExit, match="AWORLD_EGRESS cannot be used: "):
        program.main()


@pytest.mark.parametrize("code", [0, 1])
def test_its_exit_code_says_whether_it_was_told_and_no_child_has_the_passwords(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    stored = {"servers": {}, "forbidden": [], "sockets": [], "counts": "/c"}
    monkeypatch.setenv("AWORLD_EGRESS", json.dumps(stored))

    async def run(settings: Settings) -> int:
        assert settings == Settings((), (), (), "/c") and "AWORLD_EGRESS" not in os.environ
        return code

    monkeypatch.setattr(program, "_run", run)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == code

    async def fail(_: Settings) -> int:
        raise EnvironmentFailure("unbound is not installed here.")

    monkeypatch.setenv("AWORLD_EGRESS", json.dumps(stored))
    monkeypatch.setattr(program, "_run", fail)
    with pytest.raises(SystemExit, match=r"The egress ends: unbound is not installed here\."):
        program.main()
