"""The gateway's program: it serves by its settings until it is told to end."""

import contextlib
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from aworld_train.serving.env_gateway import __main__ as program

SECRET = "a secret of at least thirty-two characters"
WITHIN = 30.0


def settings(folder: Path, port: int) -> dict[str, object]:
    return {
        "name": "e",
        "host": "127.0.0.1",
        "port": port,
        "sockets": [str(folder / "worker")],
        "scoring": 0,
        "egress": None,
        "limits": {"queue_seconds": 7.0},
    }


def status(url: str) -> int:
    """The status of a response; 0 while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=WITHIN) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("password", ["", "of the desktops"])
def test_it_serves_with_desktops_where_there_is_a_password_until_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    monkeypatch.setenv("AWORLD_GATEWAY", json.dumps(settings(tmp_path, port)))
    monkeypatch.setenv("AWORLD_SECRET", SECRET)
    monkeypatch.setenv("AWORLD_DESKTOP_PASSWORD", password)
    monkeypatch.setattr(program.DesktopPages, "application", lambda _: program.web.Application())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            program.main()
            code = 0
        finally:
            os._exit(code)
    try:
        deadline = time.monotonic() + WITHIN
        # No worker has been ready.
        while status(f"http://127.0.0.1:{port}/health") != 503:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN) as answer:
            assert b"aworld_held_bytes" in answer.read()
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_what_it_is_told_reaches_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []
    pages: list[tuple[object, ...]] = []

    class Told(program.Gateway):
        def __init__(self, *arguments: object, **more: object):
            made.append((*arguments, more))
            super().__init__(*arguments, **more)  # type: ignore[arg-type]

    class Pages(program.DesktopPages):
        def __init__(self, *arguments: object):
            pages.append(arguments[:3])

        def application(self) -> program.web.Application:
            return program.web.Application()

    served: list[tuple[str, int]] = []

    async def serve(_: object, __: object, host: str, port: int) -> None:
        served.append((host, port))

    monkeypatch.setattr(program, "Gateway", Told)
    monkeypatch.setattr(program, "DesktopPages", Pages)
    monkeypatch.setattr(program, "_serve", serve)
    monkeypatch.setattr(program.resource, "setrlimit", lambda *_: None)
    monkeypatch.setenv("AWORLD_SECRET", SECRET)
    for more, revoked in (({}, [tmp_path / "revoked.json"]), ({"revoked": "/there"}, [Path("/there")])):
        monkeypatch.setenv("AWORLD_GATEWAY", json.dumps({**settings(tmp_path, 1234), "scoring": 1, **more}))
        monkeypatch.setenv("AWORLD_DESKTOP_PASSWORD", "the password")
        program.main()
        *arguments, options = made.pop()
        limits = program.GatewayLimits(queue_seconds=7.0)
        assert arguments == ["e", SECRET, [str(tmp_path / "worker")], limits]
        assert options == {"revoked": revoked, "scoring": 1, "egress": None}
        assert pages.pop() == ("e", SECRET, "the password")
    assert served == [("127.0.0.1", 1234)] * 2


@pytest.mark.parametrize("secret", [None, "", "x" * 31])
def test_without_a_secret_there_is_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    monkeypatch.setenv("AWORLD_GATEWAY", json.dumps(settings(tmp_path, 1)))
    monkeypatch.delenv("AWORLD_SECRET", raising=False)
    if secret is not None:
        monkeypatch.setenv("AWORLD_SECRET", secret)
    with pytest.raises(SystemExit, match="AWORLD_SECRET is not set"):
        program.main()


def test_many_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = program.resource
    limits: list[object] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (which, 99))
    monkeypatch.setattr(resource, "setrlimit", lambda *given: limits.append(given))
    program._allow_many_files()
    assert limits == [(resource.RLIMIT_NOFILE, (99, 99))]
