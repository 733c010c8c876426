"""The desktop of a worker: an X server without a screen, a window manager, and a VNC stream for each viewer.

The spawner starts all of it, so that a wipe ends it with everything drawn on it. Each viewer gets an x11vnc of its own
on one end of a socket pair, so there is no port or socket that a tool could connect to, and no work without a viewer.
It requires no password: the gateway checks who may look.
"""

import asyncio
import contextlib
import os
import socket

from aiohttp import WSMsgType, web

from aworld_train.serving.manifest import ServerEntry
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import Spawner

VARIABLES = {"DISPLAY": ":1"}
PROTOCOLS = ("binary",)
_NUMBER = VARIABLES["DISPLAY"].removeprefix(":")
# No shared memory with programs or viewers: it would outlive them when a wipe ends them.
_DISPLAY = (
    *("Xvfb", f":{_NUMBER}", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"),
    *("-extension", "MIT-SHM", "-displayfd", "1"),
)
# Debian's alias for the installed window manager.
_WINDOW_MANAGER = ("x-window-manager",)
# For one viewer, on standard input.
_VIEWER = ("x11vnc", "-inetd", "-display", f":{_NUMBER}", "-shared", "-noshm", "-norc", "-nopw", "-quiet")
_START_SECONDS = 20.0
_MAX_VIEWERS = 8
_CHUNK = 1 << 16


class Desktop:
    def __init__(self, spawner: Spawner):
        self._spawner = spawner
        self._changing = asyncio.Lock()
        self._is_up = False
        self._viewers = 0

    async def start(self) -> None:
        async with self._changing:
            await self._start_display()
            null = os.open(os.devnull, os.O_RDWR)
            try:
                await self._run(_WINDOW_MANAGER, null, null)
            finally:
                os.close(null)
            self._is_up = True

    async def stop(self) -> None:
        """Start nothing more, so that a wipe can end all that runs."""
        async with self._changing:
            self._is_up = False

    async def watch(self, request: web.Request) -> web.StreamResponse:
        if self._viewers >= _MAX_VIEWERS:
            return web.Response(status=503, text=f"{_MAX_VIEWERS} people look at this desktop already")
        self._viewers += 1
        try:
            return await self._show(request)
        except CallFailure as failure:
            return web.Response(status=503, text=failure.message)
        finally:
            self._viewers -= 1

    async def _show(self, request: web.Request) -> web.StreamResponse:
        reader, writer = await self._start_viewer()
        response = web.WebSocketResponse(protocols=PROTOCOLS, compress=False)
        sending: asyncio.Task[None] | None = None
        try:
            await response.prepare(request)
            sending = asyncio.create_task(_send(reader, response))
            async for message in response:
                if message.type is WSMsgType.BINARY:
                    writer.write(message.data)
                    await writer.drain()
        except ConnectionError:
            pass  # x11vnc has ended: with its display, or with the session
        finally:
            if sending is not None:
                sending.cancel()
            writer.close()  # which ends x11vnc
        return response

    async def _start_viewer(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        worker_end, viewer_end = socket.socketpair()
        try:
            async with self._changing:
                if not self._is_up:
                    raise CallFailure("tool_unavailable", "the desktop is being restarted")
                await self._run(_VIEWER, viewer_end.fileno(), viewer_end.fileno())
            return await asyncio.open_connection(sock=worker_end)
        except BaseException:
            worker_end.close()
            raise
        finally:
            viewer_end.close()

    async def _start_display(self) -> None:
        reading, writing = os.pipe()
        try:
            await self._run(_DISPLAY, writing, writing, errors="&1")
        except CallFailure:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        await _wait_for_display(reading)

    async def _run(
        self, command: tuple[str, ...], standard_input: int, standard_output: int, errors: str = "/dev/null"
    ) -> None:
        # Their errors are not logged: at every start they warn of things that do not matter in a container.
        redirected = ("sh", "-c", f'exec "$@" 2>{errors}', "sh", *command)
        entry = ServerEntry(command=redirected)
        await self._spawner.spawn("the desktop", entry, standard_input, standard_output)


async def _wait_for_display(descriptor: int) -> None:
    """Wait until the X server writes the number of its display, which it does once it can be used."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    last_line = ""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while line := (await reader.readline()).decode(errors="replace"):
                if line.strip() == _NUMBER:
                    return
                last_line = line.strip() or last_line
        raise CallFailure(
            "tool_unavailable", f"the desktop does not start: {last_line or 'Xvfb says nothing'}"
        )
    except TimeoutError:
        raise CallFailure(
            "tool_unavailable", f"the desktop did not start within {_START_SECONDS:g} seconds: {last_line}"
        ) from None
    finally:
        transport.close()


async def _send(reader: asyncio.StreamReader, response: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await response.send_bytes(chunk)
        await response.close()
