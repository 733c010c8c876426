"""One episode at the tool gateway: its tool calls, their results, and whether its environment was lost.

The session remembers tool calls and tool lists by MCP session and request id until their answer passes, on whichever
stream. When the episode's tools are lost, every later request of the agent gets the same error at once.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from aworld_train import waits
from aworld_train.episode.tool_calls import ToolCallRecord
from aworld_train.errors import CassetteError
from aworld_train.network import proxy_for
from aworld_train.rollout.cassette import Cassette, CassetteReplay, Mode, server_identity
from aworld_train.rollout.cassette.key import CallKey
from aworld_train.rollout.episode_clock import current_clock
from aworld_train.rollout.loss_evidence import LostSession, failure_of
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_answers import AnswerExceeds, parse
from aworld_train.rollout.tool_record import ToolCounts, outcome_text
from aworld_train.rollout.tools import ToolServer
from aworld_train.serving.mcp_messages import SESSION_HEADER, member, read_limits
from aworld_train.whole_text import whole_text

_CLOSE_SECONDS = 5.0


class Call:
    def __init__(self, tool: str, arguments: str, recorded: CallKey | None):
        self.tool = tool
        self.arguments = arguments
        self.recorded = recorded
        self.began = time.monotonic()
        self.began_at = time.time()
        self.open = True
        self.wait = waits.begin("tool", tool)


class _ToolList:
    """A requested tool list; a long one comes in several answers."""


_PendingKey = tuple[str | None, str]  # a session, and the id of a request as JSON: 1 and "1" are two


class ToolGatewaySession:
    """An episode's use of the tool gateway; opened by ``ToolGateway.open_session``.

    ``url`` holds the ``token``, so the agent needs no other credential. ``lost`` is why its tools were lost, once they
    were.
    """

    def __init__(
        self,
        upstream: ToolServer,
        cassette: Cassette | None,
        address: str,
        http: aiohttp.ClientSession,
        on_close: "Callable[[ToolGatewaySession], None]",
    ):
        self.token = secrets.token_urlsafe()
        self.url = f"{address}/{self.token}/mcp"
        self.counts = ToolCounts()
        self.lost: EnvironmentLost | None = None
        self.upstream = upstream
        self.http = http
        self.proxy = proxy_for(upstream.url)
        self.cassette = cassette
        self.mcp_sessions: set[str] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.identity = server_identity(upstream.url, upstream.headers)
        self.playback = CassetteReplay(cassette, self.identity) if cassette else None
        if cassette is not None and cassette.mode is Mode.replay:
            cassette.tools(self.identity)  # raises now if there is no tool list, not during the episode
        self.tool_timeouts: dict[str, float] = {}
        self._pending: dict[_PendingKey, Call | _ToolList] = {}
        self._tools: list[Any] = []
        self._unrecorded: CassetteError | None = None
        self._on_close = on_close
        self._closed = False
        self._clock = current_clock()
        self._opened = time.monotonic()

    def waiting(self) -> AbstractContextManager[None]:
        return self._clock.waiting() if self._clock else contextlib.nullcontext()

    async def close(self) -> None:
        """End the episode: cancel the requests under way and end its MCP sessions in the environment."""
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        tasks = self.tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        for pending in self._pending.values():
            if isinstance(pending, Call):
                waits.end(pending.wait)
        # Also when the environment was lost: a session that is left open would hold a worker.
        await asyncio.gather(*map(self._end_session, self.mcp_sessions))
        if self._unrecorded is not None:
            raise self._unrecorded

    def begin_call(self, mcp_session: str | None, request: Mapping[str, Any]) -> Call:
        params = _params(request)
        tool, arguments = str(params.get("name", "")), params.get("arguments")
        recorded = None
        if self.playback is not None:
            # Arguments that are not an object, or cannot be written as JSON, are never recorded.
            with contextlib.suppress(ValueError, AttributeError):
                recorded = self.playback.next(tool, arguments)
        self.counts.calls += 1
        call = Call(tool, whole_text(json.dumps(arguments, ensure_ascii=False)), recorded)
        self._pending[_pending_key(mcp_session, request)] = call
        return call

    def begin_list(self, mcp_session: str | None, request: Mapping[str, Any]) -> None:
        """Remember a request for a tool list, if the list is to be recorded."""
        if self.cassette is None or not self.cassette.records:
            return
        if not _params(request).get("cursor"):
            self._tools = []
        self._pending[_pending_key(mcp_session, request)] = _ToolList()

    def end_call(
        self, call: Call, failed: bool, outcome: Mapping[str, Any] | None = None, *, replayed: bool = False
    ) -> None:
        """Count and record how a call first ended: ``outcome`` is the JSON-RPC answer, None if no tool gave one."""
        waits.end(call.wait)
        if call.open:
            call.open = False
            seconds = time.monotonic() - call.began
            self.counts.errors += failed
            self.counts.seconds += seconds
            self.counts.records.append(
                ToolCallRecord(
                    call.tool, call.arguments, outcome_text(outcome), failed, call.began_at, seconds, replayed
                )
            )

    def cancel(self, mcp_session: str | None, request: Mapping[str, Any]) -> None:
        """End a call that the agent cancelled; a late answer to it is not recorded."""
        cancelled = {"id": _params(request).get("requestId")}
        call = self._pending.pop(_pending_key(mcp_session, cancelled), None)
        if isinstance(call, Call):
            self.end_call(call, failed=True)

    def forget(self, mcp_session: str | None, request: Mapping[str, Any]) -> None:
        self._pending.pop(_pending_key(mcp_session, request), None)

    def observe(self, mcp_session: str | None, data: bytes) -> str | None:
        """Read a message on its way to the agent: it may be an answer; returns the loss that it tells of."""
        if not self._pending and b'"error"' not in data:
            return None
        try:
            message = parse(data)
        except ValueError:
            return None
        if not isinstance(message, dict) or "method" in message:
            return None
        awaited = self._pending.pop(_pending_key(mcp_session, message), None)
        if isinstance(awaited, Call):
            self._finish_call(awaited, message)
        elif awaited is not None:
            self._collect_tools(message)
        return _loss_reason(message)

    def observe_opening(self, data: bytes) -> None:
        with contextlib.suppress(AnswerExceeds, ValueError):
            message = parse(data)
            self.tool_timeouts |= read_limits(member(message, "result", "capabilities"))
            if member(message, "error", "data", "type") == "busy":
                self.mark_lost(
                    f"did not open a session: {member(message, 'error', 'message') or 'it is busy'}"
                )

    async def check(self, mcp_session: str | None, reason: str, status: int | None = None) -> None:
        """Record that an MCP session is lost, if it is: ``reason`` may be made up by its own tools."""
        upstream = self.upstream
        lost = LostSession(upstream.url, upstream.headers, mcp_session, self._opened, status, reason)
        if (failure := await failure_of(lost)) is not None:
            self.mark_lost(reason, type(failure))

    def mark_lost(self, reason: str, kind: type[EnvironmentLost] = EnvironmentLost) -> None:
        if self.lost is None:
            parts = urlsplit(self.upstream.url)
            location = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
            self.lost = kind(f"{location}: {reason}")

    def _finish_call(self, call: Call, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        is_result = isinstance(result, dict) and isinstance(result.get("content"), list)
        failed = not is_result or bool(message["result"].get("isError"))
        self.end_call(call, failed, message)
        if (
            self.cassette is None
            or not self.cassette.records
            or call.recorded is None
            or _loss_reason(message)
        ):
            return
        if isinstance(result, dict) and "content" in result:
            self._write(partial(self.cassette.keep, call.recorded, {"result": result}))
        elif isinstance(message.get("error"), dict):
            self._write(partial(self.cassette.keep, call.recorded, {"error": message["error"]}))

    def _collect_tools(self, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return
        self._tools += result["tools"]
        if self.cassette is not None and not result.get("nextCursor"):
            self._write(partial(self.cassette.keep_tools, self.identity, self._tools))

    def _write(self, write: Callable[[], None]) -> None:
        """Write to the cassette. A failure is raised by ``close``; the agent still gets its answer."""
        try:
            write()
        except CassetteError as error:
            self._unrecorded = self._unrecorded or error

    async def _end_session(self, mcp_session: str) -> None:
        headers = {**self.upstream.headers, SESSION_HEADER: mcp_session}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                async with self.http.delete(self.upstream.url, headers=headers, proxy=self.proxy):
                    pass


def _params(request: Mapping[str, Any]) -> dict[str, Any]:
    params = request.get("params")
    return params if isinstance(params, dict) else {}


def _pending_key(mcp_session: str | None, message: Mapping[str, Any]) -> _PendingKey:
    return mcp_session, json.dumps(message.get("id"))


def _loss_reason(message: Mapping[str, Any]) -> str | None:
    is_lost = member(message, "error", "data", "type") == "worker_lost"
    return str(member(message, "error", "message")) if is_lost else None
