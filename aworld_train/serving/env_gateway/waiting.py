"""What a client hears while its session waits for a worker.

After a few seconds the response to ``initialize`` begins as a stream of events, so that clients do not give up on a
silent connection: log messages, which MCP allows before a session is open, and progress if the request has a token.
https://modelcontextprotocol.io/specification/2025-06-18/basic/lifecycle
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from aworld_train.serving.env_gateway.request_limits import part_of
from aworld_train.serving.mcp_messages import EVENTS, event, json_event, member

_WRITE_SECONDS = 10.0
_LOGGER = "environment"


class WaitingClient:
    def __init__(self, request: web.Request, message: bytes, headers: Mapping[str, str]):
        self.request, self.message = request, message
        self._headers = dict(headers)
        self._number = part_of(message, "id")
        self._token = _progress_token(message)
        self._takes_events = EVENTS in request.headers.get("Accept", "")
        self._started = time.monotonic()
        self._response: web.StreamResponse | None = None

    @property
    def has_response(self) -> bool:
        return self._response is not None

    async def report(self, ahead: int, states: Mapping[str, int]) -> None:
        if not self._takes_events:
            return
        if self._response is None:
            headers = {**self._headers, "Content-Type": EVENTS, "Cache-Control": "no-cache"}
            self._response = web.StreamResponse(headers=headers)
            await self._response.prepare(self.request)
        workers = ", ".join(f"{count} {state}" for state, count in states.items() if count)
        text = f"waiting for a free worker: {ahead} before you; workers: {workers or 'none'}"
        await self._write(json_event(_notification("message", level="info", logger=_LOGGER, data=text)))
        if self._token is not None:
            seconds = round(time.monotonic() - self._started, 1)
            progress = _notification("progress", progressToken=self._token, progress=seconds, message=text)
            await self._write(json_event(progress))

    async def answer(self, response: web.StreamResponse, error: str = "") -> web.StreamResponse:
        """The response, as the last event if it has begun; ``error`` is the type of a refusal."""
        if self._response is None:
            return response
        assert isinstance(response, web.Response) and isinstance(response.body, bytes)
        body = response.body
        if error:
            reply = json.loads(body)
            reply |= {"id": self._number, "error": {"data": {"type": error}, **reply["error"]}}
            body = json_event(reply)
        elif response.content_type != EVENTS:
            body = event(body)
        await self._write(body)
        return self._response

    async def _write(self, data: bytes) -> None:
        assert self._response is not None
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._response.write(data)
        except TimeoutError as error:
            if self.request.transport is not None:
                self.request.transport.abort()
            raise ConnectionResetError("the client does not take its response") from error


def _progress_token(message: bytes) -> str | int | None:
    token = member(part_of(message, "params"), "_meta", "progressToken")
    return token if isinstance(token, str | int) else None


def _notification(kind: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{kind}", "params": params}
