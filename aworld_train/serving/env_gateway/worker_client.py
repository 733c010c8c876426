"""The gateway's view of one worker: its state is followed while it runs, and again after a restart.

Each response has to prove that it is the worker's (``serving.channel``); if one does not, the gateway disconnects.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from aworld_train.serving.channel import Channel

_SILENCE_SECONDS = 10.0  # a worker reports its state every two seconds
_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 5
_KEEP_ALIVE_SECONDS = 300
_READ_BYTES = 32 << 10  # of a response that the client has not read yet, twice as much at most
_URL = "http://worker"


class NotTheWorker(aiohttp.ClientError): ...


@dataclass(eq=False)
class WorkerClient:
    """``on_change`` is called when the number of sessions that it takes may have changed, ``on_call`` with server,
    outcome and seconds of each tool call.
    """

    number: int
    socket: str
    channel: Channel
    scoring: bool
    on_change: Callable[[], None]
    on_loss: Callable[["WorkerClient"], None]
    on_call: Callable[[str, str, float], None]
    alive: bool = False
    ready: bool = False
    proved: bool = False  # whether it has been ready since it was last lost
    was_idle: bool = False  # whether it was ready and had no session when it was last lost
    exclusive: bool = True
    servers: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    starting: str = ""  # the tool server that it is starting
    sessions: set[str] = field(default_factory=set)
    bodies: set[aiohttp.StreamReader] = field(default_factory=set)  # of the responses that are being read
    _slots: int = 0
    _http: aiohttp.ClientSession | None = None

    @property
    def free(self) -> bool:
        return self.alive and self.ready and len(self.sessions) < self._slots

    @property
    def state(self) -> str:
        """``down``, ``busy``, ``ready`` or ``cleaning`` (also while it starts)."""
        if not self.alive:
            return "down"
        if self.sessions:
            return "busy"
        return "ready" if self.ready else "cleaning"

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | AsyncIterator[bytes] | None = None,
    ) -> "_VerifiedRequest":
        """A context with the worker's response to a request, its body not read yet.

        Entering it raises NotTheWorker if another program has answered, ClientError or OSError without an answer.
        """
        proof = self.channel.request_headers()
        sent = {**(headers or {}), **proof}
        return _VerifiedRequest(self, proof, self.http.request(method, _URL + path, headers=sent, data=data))

    async def connect(self, path: str, protocols: tuple[str, ...]) -> aiohttp.ClientWebSocketResponse:
        proof = self.channel.request_headers()
        websocket = await self.http.ws_connect(_URL + path, protocols=protocols, headers=proof)
        await self.verify_worker(proof, websocket._response.headers)
        return websocket

    async def verify_worker(self, sent: Mapping[str, str], received: Mapping[str, str]) -> None:
        """Check that the worker has answered; otherwise disconnect and raise NotTheWorker."""
        if self.channel.is_worker(sent, received):
            return
        sys.stderr.write(f"What answers at {self.socket} is not worker {self.number}; it is not used.\n")
        await self.reset()
        raise NotTheWorker(f"worker {self.number} was replaced by something else")

    @property
    def http(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self.socket, limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=False,
                read_bufsize=_READ_BYTES,
            )
        return self._http

    async def follow(self) -> None:
        while True:
            try:
                await self._listen()
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                pass
            finally:
                await self._disconnect()
            await asyncio.sleep(_RETRY_SECONDS)

    async def reset(self, failed: aiohttp.ClientSession | None = None) -> None:
        """Disconnect, so that the worker ends all its sessions, and connect again; not if ``failed`` was replaced."""
        if failed is not None and failed is not self._http:
            return
        http, self._http = self._http, None  # first, so that no request gets a closed client
        bodies, self.bodies = self.bodies, set()
        if http is not None:
            await http.close()
        for body in bodies:  # whose readers a closed client leaves waiting
            body.set_exception(aiohttp.ClientConnectionError(f"worker {self.number} was disconnected"))

    async def _listen(self) -> None:
        async with self.request("GET", "/state") as response:
            response.raise_for_status()
            while True:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    line = await response.content.readline()
                if not line:
                    return
                self._handle_line(json.loads(line))

    def _handle_line(self, line: dict[str, Any]) -> None:
        if "call" in line:
            server, outcome, seconds = line["call"]
            self.on_call(server, outcome, seconds)
        elif "ready" in line:
            self.alive = True
            self.ready = line["ready"]
            self.proved = self.proved or self.ready
            self._slots = line["slots"]
            self.exclusive = self._slots == 1
            self.servers, self.broken = line["servers"], line["broken"]
            self.starting = line.get("starting", "")
            self.on_change()

    async def _disconnect(self) -> None:
        self.was_idle = self.ready and not self.sessions
        was_alive, self.alive, self.ready, self.proved = self.alive, False, False, False
        await self.reset()
        if was_alive or self.sessions:
            self.on_loss(self)


class _VerifiedRequest:
    """A request to a worker, and its response once that has been verified.

    Not an asynchronous generator, which the event loop tracks: that costs more than the proof.
    """

    def __init__(self, link: WorkerClient, proof: Mapping[str, str], request: Any):
        self._link, self._proof, self._request = link, proof, request

    async def __aenter__(self) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._request.__aenter__()
        try:
            await self._link.verify_worker(self._proof, response.headers)
        except BaseException:
            response.close()
            raise
        self._body = response.content
        self._link.bodies.add(self._body)
        return response

    async def __aexit__(self, *exception: object) -> None:
        self._link.bodies.discard(self._body)
        await self._request.__aexit__(*exception)
