"""One episode at the gateway: what it asked for, what became of it, and whether its environment was lost.

Requests that have to be understood (tool calls and tool lists) are kept under session and id until their answer comes
by, on whichever stream that is. The first sign that the environment is gone ends the episode's use of it: all that the
agent asks from then on gets the same error at once.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from aworld_train.errors import CassetteError
from aworld_train.rollout.cassette import Cassette, Mode, server_identity
from aworld_train.rollout.cassette.key import CallKey
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer

_CLOSE_SECONDS = 5.0
# What the MCP SDK says where a session that it passes on has ended.
_SESSION_OVER = ("Session terminated", "Connection closed")


@dataclass
class CallCounts:
    """An episode's tool calls.

    Attributes:
        calls: All that the agent made.
        errors: Those that ended in an error: the tool's own, of the protocol, no answer in time, or not recorded.
        replayed: Those that a cassette answered.
        missed: Those that it should have answered and could not.
        seconds: How long their answers took, all together.
    """

    calls: int = 0
    errors: int = 0
    replayed: int = 0
    missed: int = 0
    seconds: float = 0.0


class Call:
    """A tool call under way."""

    def __init__(self, tool: str, recorded: CallKey | None):
        self.tool = tool
        self.recorded = recorded
        self.began = time.monotonic()
        self.open = True


class _ToolList:
    """A tool list that was asked for; a long one comes in several answers."""


_Pending = tuple[str | None, str]
"""A session, and the id of a request as JSON: 1 and "1" are two."""


class ToolGatewaySession:
    """What an episode has of the gateway; made by ``ToolGateway.admit``.

    Attributes:
        url: The MCP endpoint for the episode's agent. Who has it needs nothing more.
        token: For agents that insist on a bearer token; any other one is refused.
        counts: Its tool calls so far.
        lost: Why the environment was lost, once it was.
    """

    def __init__(
        self,
        upstream: ToolServer,
        cassette: Cassette | None,
        address: str,
        http: aiohttp.ClientSession,
        ended: "Callable[[ToolGatewaySession], None]",
    ):
        self.token = secrets.token_urlsafe(24)
        self.url = f"{address}/{self.token}/mcp"
        self.counts = CallCounts()
        self.lost: EnvironmentLost | None = None
        self.upstream = upstream
        self.http = http
        self.cassette = cassette
        self.sessions: set[str] = set()
        self.handling: set[asyncio.Task[Any]] = set()
        self.identity = server_identity(upstream.url, upstream.headers)
        self.playback = cassette.playback(self.identity) if cassette else None
        if cassette is not None and cassette.mode is Mode.replay:
            cassette.tools(self.identity)  # now, and not as an error that the agent meets
        self._pending: dict[_Pending, Call | _ToolList] = {}
        self._listed: list[Any] = []
        self._unrecorded: CassetteError | None = None
        self._ended = ended
        self._closed = False

    async def close(self) -> None:
        """End the episode: what is under way is cancelled, its sessions are ended in the environment.

        Raises:
            CassetteError: Something that should have been recorded was not.
        """
        if self._closed:
            return
        self._closed = True
        self._ended(self)
        handling = self.handling - {asyncio.current_task()}
        for task in handling:
            task.cancel()
        if handling:
            await asyncio.wait(handling, timeout=_CLOSE_SECONDS)
        # Also where it was lost: what is left of it must not hold a worker until somebody notices.
        await asyncio.gather(*map(self._end_session, self.sessions))
        self.sessions.clear()
        if self._unrecorded is not None:
            raise self._unrecorded

    def begin_call(self, session: str | None, request: Mapping[str, Any]) -> Call:
        """Count a tool call, and remember it until its answer comes."""
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        tool, arguments = str(params.get("name", "")), params.get("arguments")
        recorded = None
        if self.playback is not None:
            # What cannot be written as JSON or is no object has no answer worth keeping.
            with contextlib.suppress(ValueError, AttributeError):
                recorded = self.playback.next(tool, arguments)
        self.counts.calls += 1
        call = Call(tool, recorded)
        self._pending[_pending(session, request)] = call
        return call

    def begin_list(self, session: str | None, request: Mapping[str, Any]) -> None:
        """Remember that a tool list was asked for, if it is to be recorded."""
        if self.cassette is None or not self.cassette.records:
            return
        params = request.get("params")
        if not (isinstance(params, dict) and params.get("cursor")):
            self._listed = []
        self._pending[_pending(session, request)] = _ToolList()

    def end_call(self, call: Call, failed: bool) -> None:
        """Take down how a call ended; the first end counts."""
        if call.open:
            call.open = False
            self.counts.errors += failed
            self.counts.seconds += time.monotonic() - call.began

    def cancel(self, session: str | None, request: Mapping[str, Any]) -> None:
        """The agent gave a call up; what still comes of it is nothing to record."""
        params = request.get("params")
        number = params.get("requestId") if isinstance(params, dict) else None
        call = self._pending.pop(_pending(session, {"id": number}), None)
        if isinstance(call, Call):
            self.end_call(call, failed=True)

    def forget(self, session: str | None, request: Mapping[str, Any]) -> None:
        """No answer to this request will come any more."""
        self._pending.pop(_pending(session, request), None)

    def awaits(self, session: str | None, request: Mapping[str, Any]) -> bool:
        """Whether a call or a list has not been answered yet."""
        return _pending(session, request) in self._pending

    def saw(self, session: str | None, data: bytes) -> None:
        """Look at a message on its way to the agent: it may be an answer, or say that the environment is lost."""
        if not self._pending and b'"error"' not in data:
            return
        try:
            message = json.loads(data)
        except ValueError:
            return
        if not isinstance(message, dict) or "method" in message:
            return
        if reason := _says_lost(message):
            self.lose(reason)
        awaited = self._pending.pop(_pending(session, message), None)
        if isinstance(awaited, Call):
            self._answered(awaited, message)
        elif awaited is not None:
            self._listed_by(message)

    def lose(self, reason: str) -> None:
        """The environment is gone; the first reason is kept."""
        if self.lost is None:
            parts = urlsplit(self.upstream.url)
            place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
            self.lost = EnvironmentLost(f"{place}: {reason}")

    def _answered(self, call: Call, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        failed = not isinstance(result, dict) or bool(result.get("isError"))
        self.end_call(call, failed)
        if self.cassette is None or not self.cassette.records or call.recorded is None or self.lost:
            return
        if isinstance(result, dict) and "content" in result:
            self._record(partial(self.cassette.keep, call.recorded, {"result": result}))
        elif isinstance(message.get("error"), dict):
            self._record(partial(self.cassette.keep, call.recorded, {"error": message["error"]}))

    def _listed_by(self, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return
        self._listed += result["tools"]
        if self.cassette is not None and not result.get("nextCursor"):
            self._record(partial(self.cassette.keep_tools, self.identity, self._listed))

    def _record(self, write: Callable[[], None]) -> None:
        """The agent gets its answer also where it could not be written down; the episode's owner hears of it."""
        try:
            write()
        except CassetteError as error:
            self._unrecorded = self._unrecorded or error

    async def _end_session(self, session: str) -> None:
        headers = {**self.upstream.headers, "Mcp-Session-Id": session}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                async with self.http.delete(self.upstream.url, headers=headers):
                    pass


def _pending(session: str | None, message: Mapping[str, Any]) -> _Pending:
    return session, json.dumps(message.get("id"))


def _says_lost(message: Mapping[str, Any]) -> str | None:
    error = message.get("error")
    if not isinstance(error, dict):
        return None
    data = error.get("data")
    lost = isinstance(data, dict) and data.get("type") == "worker_lost"
    said = str(error.get("message"))
    return said if lost or said in _SESSION_OVER else None
