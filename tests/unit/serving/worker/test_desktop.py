"""The desktop of a worker, with small programs in the place of Xvfb, the window manager and x11vnc."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from aworld_train.serving.manifest import ServerEntry
from aworld_train.serving.worker import desktop
from aworld_train.serving.worker.desktop import VARIABLES, Desktop
from aworld_train.serving.worker.failures import CallFailure
from tests.open_files import open_files

WITHIN = 30.0
DISPLAY = """
case "$*" in *" -displayfd 1") ;; *) exit 1 ;; esac
echo 'a warning'; echo 1; exec sleep 600
"""
"""An X server that warns of something, and then can be drawn on."""
VIEWER = "echo seen; exec cat"


class Programs:
    """Starts the programs of a folder with the descriptors that it gets."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[list[str]] = []
        self.refused = ""
        self._running: list[subprocess.Popen[bytes]] = []

    def write(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o700)

    async def spawn(
        self,
        name: str,
        entry: ServerEntry,
        standard_input: int,
        standard_output: int,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        assert (name, environment) == ("the desktop", None)
        command = list(entry.command)
        if command[4] == self.refused:
            raise CallFailure("tool_unavailable", "no new process")
        self.started.append(command[4:])
        return self._start(command, standard_input, standard_output)

    def _start(self, command: list[str], standard_input: int, standard_output: int) -> int:
        variables = {"PATH": f"{self.folder}:/usr/bin:/bin", **VARIABLES}
        process = subprocess.Popen(command, stdin=standard_input, stdout=standard_output, env=variables)
        self._running.append(process)
        return process.pid

    def kill(self, pid: int) -> None:
        raise AssertionError("a wipe ends the programs")

    def wipe(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def ended(self, name: str) -> bool:
        """Whether the last program of this name has ended."""
        at = max(i for i, command in enumerate(self.started) if command[0] == name)
        return self._running[at].wait(WITHIN) is not None


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    made.write("Xvfb", DISPLAY)
    made.write("x-window-manager", "exec sleep 600")
    made.write("x11vnc", VIEWER)
    yield made
    made.wipe()


@asynccontextmanager
async def shown(one: Desktop) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    app = web.Application()
    app.router.add_get("/desktop", one.watch)
    async with asyncio.timeout(WITHIN), TestClient(TestServer(app)) as client:
        yield client


async def test_it_is_up_when_its_display_is_and_nothing_of_it_listens(programs: Programs) -> None:
    await Desktop(programs).start()
    display, manager = programs.started
    assert display[:2] == ["Xvfb", VARIABLES["DISPLAY"]] and manager == ["x-window-manager"]
    assert display[display.index("-nolisten") + 1] == "tcp"
    assert display[display.index("-extension") + 1] == "MIT-SHM"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'no permission' >&2; exit 1", "the desktop does not start: no permission"),
        ("exit 1", "the desktop does not start: Xvfb says nothing"),
    ],
)
async def test_a_display_that_does_not_start_is_told_of_with_its_last_words(
    programs: Programs, script: str, reason: str
) -> None:
    programs.write("Xvfb", script)
    one = Desktop(programs)
    with pytest.raises(CallFailure, match=reason) as caught:
        await one.start()
    assert caught.value.kind == "tool_unavailable"
    assert [command[0] for command in programs.started] == ["Xvfb"]
    async with shown(one) as client, client.get("/desktop") as refused:
        assert refused.status == 503


async def test_a_display_that_says_something_and_never_starts_is_waited_for_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desktop, "_START_SECONDS", 0.05)
    reading, writing = os.pipe()
    os.write(writing, b"the last word\n\n")
    try:
        with pytest.raises(CallFailure, match=r"did not start within 0\.05 seconds: the last word"):
            await desktop._wait_for_display(reading)
    finally:
        os.close(writing)


async def test_nothing_stays_open_of_what_was_started_or_could_not_be(programs: Programs) -> None:
    one, before = Desktop(programs), open_files()
    for programs.refused in ("", "Xvfb", "x-window-manager"):
        if programs.refused:
            with pytest.raises(CallFailure, match="no new process"):
                await one.start()
        else:
            await one.start()
        await asyncio.sleep(0)  # the loop closes a pipe in its next round
        assert not open_files() - before
    programs.refused = "x11vnc"
    with pytest.raises(CallFailure, match="no new process"):
        await one._start_viewer()
    assert not open_files() - before


async def test_a_viewer_of_its_own_carries_the_picture_both_ways_and_ends_with_the_stream(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    one = Desktop(programs)
    await one.start()
    async with shown(one) as client:
        async with client.ws_connect("/desktop", protocols=desktop.PROTOCOLS, compress=15) as stream:
            assert (stream.protocol, stream.compress) == ("binary", 0)
            assert await stream.receive_bytes() == b"seen\n"
            await stream.send_str("not of the protocol")
            await stream.send_bytes(b"a key")
            assert await stream.receive_bytes() == b"a key"
        assert programs.ended("x11vnc")
        viewer = programs.started[-1]
        assert viewer[0] == "x11vnc" and "-inetd" in viewer and "-rfbport" not in viewer
    assert caplog.messages == []


async def test_a_viewer_that_does_not_read_slows_down_who_sends_to_it(programs: Programs) -> None:
    programs.write("x11vnc", "exec sleep 600")
    one = Desktop(programs)
    await one.start()
    async with shown(one) as client, client.ws_connect("/desktop") as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                for _ in range(64):
                    await stream.send_bytes(bytes(1 << 18))
        programs.wipe()
        assert (await stream.receive()).type is WSMsgType.CLOSE


async def test_a_stream_ends_with_its_viewer(programs: Programs) -> None:
    programs.write("x11vnc", "echo seen")
    one = Desktop(programs)
    await one.start()
    async with shown(one) as client, client.ws_connect("/desktop") as stream:
        assert await stream.receive_bytes() == b"seen\n"
        assert (await stream.receive()).type is WSMsgType.CLOSE


async def test_a_desktop_that_is_stopped_starts_no_viewer_until_it_is_started(programs: Programs) -> None:
    one = Desktop(programs)
    async with shown(one) as client:
        for change, status in ((None, 503), (one.start, 200), (one.stop, 503), (one.start, 200)):
            if change is not None:
                await change()
            if status == 503:
                async with client.get("/desktop") as refused:
                    assert (refused.status, await refused.text()) == (503, "the desktop is being restarted")
            else:
                async with client.ws_connect("/desktop") as stream:
                    assert await stream.receive_bytes() == b"seen\n"


async def test_so_many_people_look_and_who_leaves_makes_room(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop, "_MAX_VIEWERS", 2)
    one = Desktop(programs)
    await one.start()
    async with shown(one) as client:
        first, second = await client.ws_connect("/desktop"), await client.ws_connect("/desktop")
        async with client.get("/desktop") as refused:
            assert (refused.status, await refused.text()) == (503, "2 people look at this desktop already")
        await first.close()
        while True:
            try:
                third = await client.ws_connect("/desktop")
                break
            except aiohttp.WSServerHandshakeError:
                await asyncio.sleep(0.01)
        for stream in (second, third):
            assert await stream.receive_bytes() == b"seen\n"
            await stream.close()
