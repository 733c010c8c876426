"""The desktop of a worker: an X server without a screen, a window manager, and a VNC stream for whoever looks.

All of it is started by the spawner, like tool servers, so a wipe ends it with everything drawn on it, and it is started
anew before the worker takes the next session. Nothing listens for VNC: each viewer gets an x11vnc of its own on one end
of a socket pair, so there is no port or socket that a tool could connect to, and no work while nobody looks. It asks
for no password: who may look is for the gateway to say.
"""

import asyncio
import contextlib
import os
import socket

from aiohttp import WSMsgType, web

from aworld_train.serving.manifest import ServerEntry
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.toolserver import Starter

VARIABLES = {"DISPLAY": ":1"}
"""What programs need that draw on it."""
PROTOCOLS = ("binary",)
"""The WebSocket subprotocol that noVNC may ask for."""
_NUMBER = VARIABLES["DISPLAY"].removeprefix(":")
# No shared memory with programs, here and for viewers: it would outlive them when a wipe ends them.
_DISPLAY = (
    *("Xvfb", f":{_NUMBER}", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"),
    *("-extension", "MIT-SHM", "-displayfd", "1"),
)
# Debian's name for whichever window manager is installed.
_WINDOW_MANAGER = ("x-window-manager",)
# For one viewer, on standard input.
_VIEW = ("x11vnc", "-inetd", "-display", f":{_NUMBER}", "-shared", "-noshm", "-norc", "-nopw", "-quiet")
_START_SECONDS = 20.0
_MAX_VIEWERS = 8
_CHUNK = 1 << 16


class Desktop:
    """The desktop, running or not.

    Args:
        starter: Starts programs.
    """

    def __init__(self, starter: Starter):
        self._starter = starter
        self._changing = asyncio.Lock()
        self._up = False
        self._viewers = 0

    async def start(self) -> None:
        """Start it, and return when programs can draw on it.

        Raises:
            CallFailure: It does not start.
        """
        async with self._changing:
            await self._start_display()
            nothing = os.open(os.devnull, os.O_RDWR)
            try:
                await self._run(_WINDOW_MANAGER, nothing, nothing)
            finally:
                os.close(nothing)
            self._up = True

    async def stop(self) -> None:
        """Start nothing more, so that a wipe can end what runs."""
        async with self._changing:
            self._up = False

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """A WebSocket that carries the VNC stream, in binary messages, until either side ends it."""
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
        reader, writer = await self._start_view()
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
            writer.close()  # and with that x11vnc ends
        return response

    async def _start_view(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        try:
            async with self._changing:
                if not self._up:
                    raise CallFailure("tool_unavailable", "the desktop is being started anew")
                await self._run(_VIEW, theirs.fileno(), theirs.fileno())
            return await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

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
        # Not into the worker's log: at every start they warn of things that do not matter in a container.
        redirected = ("sh", "-c", f'exec "$@" 2>{errors}', "sh", *command)
        entry = ServerEntry(command=redirected)
        await self._starter.spawn("the desktop", entry, standard_input, standard_output)


async def _wait_for_display(descriptor: int) -> None:
    """Read what the X server writes until it says which display it has, which it does when it can be used."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    said = ""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while line := (await reader.readline()).decode(errors="replace"):
                if line.strip() == _NUMBER:
                    return
                said = line.strip() or said
        raise CallFailure("tool_unavailable", f"the desktop does not start: {said or 'Xvfb says nothing'}")
    except TimeoutError:
        raise CallFailure(
            "tool_unavailable", f"the desktop did not start within {_START_SECONDS:g} seconds: {said}"
        ) from None
    finally:
        transport.close()


async def _send(reader: asyncio.StreamReader, response: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await response.send_bytes(chunk)
        await response.close()
