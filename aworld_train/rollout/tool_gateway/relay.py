"""One request of an agent passed to the real environment, and what comes back passed to the agent.

Bodies pass unchanged, JSON as a whole and event streams as they come. An answer of the gateway's own takes their place
only where there is none: the environment was lost, or a tool took too long.
"""

import asyncio
import contextlib
import json
import random
from typing import Any

import aiohttp
from aiohttp import web

from aworld_train.rollout.tool_gateway.admission import Call, ToolGatewaySession
from aworld_train.rollout.tool_gateway.events import EventReader, event
from aworld_train.rollout.tool_gateway.messages import Message, answer, failure, tool_failure
from aworld_train.rollout.tool_gateway.player import SESSION_HEADER

# The agent's own credentials are not among them, nor its choice of servers: those of the admission are sent.
_PASSED_ON = ("Accept", "Content-Type", "Last-Event-ID", "MCP-Protocol-Version", SESSION_HEADER)
_PASSED_BACK = ("Content-Type", SESSION_HEADER, "Cache-Control", "Allow")
_BUSY = (429, 503)
_BUSY_SECONDS = (1.0, 5.0)  # least and most before a session that there was no room for is asked for again
_CANCEL_SECONDS = 1.0
_SAID = 300  # characters of what the environment said in a refusal

LOST = "the tool environment was lost; what was done in it is gone, and this episode is over"


class Passage:
    """The way of one request and its answer.

    Args:
        admission: The episode's.
        request: The agent's.
        body: Its body.
        message: The body read, where it is a POST.
        call: The tool call that it is, if it is one.
    """

    def __init__(
        self,
        admission: ToolGatewaySession,
        request: web.Request,
        body: bytes,
        message: Message | None,
        call: Call | None,
    ):
        self._admission, self._request, self._body = admission, request, body
        self._message: Message = message or {}
        self._call = call
        self._session = request.headers.get(SESSION_HEADER)
        self._opening = self._message.get("method") == "initialize"
        self._begun: web.StreamResponse | None = None

    async def walk(self) -> web.StreamResponse:
        """Pass the request on, and its answer back; whatever becomes of it, the agent is answered."""
        try:
            async with asyncio.timeout(self._patience()):
                return await (self._open() if self._opening else self._ask())
        except asyncio.CancelledError:
            if self._call is not None:
                self._admission.end_call(self._call, failed=True)
            raise
        except aiohttp.ClientError as error:  # before TimeoutError, which some of them are too
            return await self._broken(error)
        except TimeoutError:
            return await self._too_late()
        except OSError as error:
            return await self._broken(error)

    def _patience(self) -> float | None:
        """Seconds for the whole of it; a stream that waits for the server's messages lasts as long as the episode."""
        if self._request.method == "GET":
            return None
        upstream = self._admission.upstream
        return upstream.connect_timeout if self._opening else upstream.call_timeout

    async def _open(self) -> web.StreamResponse:
        """Open a session, again and again while the environment has no room."""
        while True:
            async with self._sent() as given:
                if given.status not in _BUSY:
                    return await self._take(given)
                least, most = _BUSY_SECONDS
                try:
                    pause = min(max(float(given.headers.get("Retry-After", least)), least), most)
                except ValueError:  # a date
                    pause = most
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _ask(self) -> web.StreamResponse:
        async with self._sent() as given:
            return await self._take(given)

    def _sent(self) -> Any:
        admission = self._admission
        headers = {name: self._request.headers[name] for name in _PASSED_ON if name in self._request.headers}
        return admission.http.request(
            self._request.method,
            admission.upstream.url,
            headers={**headers, **admission.upstream.headers},
            data=self._body or None,
        )

    async def _take(self, given: aiohttp.ClientResponse) -> web.StreamResponse:
        if self._is_loss(given.status):
            return await self._lose(f"HTTP {given.status}: {await _said(given)}")
        headers = {name: given.headers[name] for name in _PASSED_BACK if name in given.headers}
        if self._opening and SESSION_HEADER in given.headers:
            self._admission.sessions.add(given.headers[SESSION_HEADER])
        if given.content_type == "text/event-stream":
            return await self._stream(given, headers)
        data = await given.read()
        self._admission.saw(self._session, data)
        return web.Response(body=data, status=given.status, headers=headers)

    def _is_loss(self, status: int) -> bool:
        """Whether an HTTP status means that the episode has no environment (any more)."""
        if self._request.method == "DELETE":
            return False
        if self._opening:
            return status >= 400
        return status >= 500 or status in (401, 403) or (status == 404 and self._session is not None)

    async def _stream(self, given: aiohttp.ClientResponse, headers: dict[str, str]) -> web.StreamResponse:
        reader = EventReader()
        self._begun = web.StreamResponse(status=given.status, headers=headers)
        await self._begun.prepare(self._request)
        async for chunk in given.content.iter_any():
            for data in reader.feed(chunk):
                self._admission.saw(self._session, data)
            await self._begun.write(chunk)
        if self._call is not None and self._call.open and not reader.resumable:
            return await self._lose("its answer ended before the result came")
        return self._begun

    async def _broken(self, error: Exception) -> web.StreamResponse:
        """A connection failed: the agent's, who has to hear nothing more, or the environment's."""
        if self._request.transport is None or self._request.transport.is_closing():
            raise error
        if self._request.method == "GET" and self._begun is not None:
            return self._begun  # the client may ask for another one, as it may of any server
        said = str(error).splitlines()
        return await self._lose(f"{type(error).__name__}: {said[0]}" if said else type(error).__name__)

    async def _too_late(self) -> web.StreamResponse:
        if self._opening:
            seconds = self._admission.upstream.connect_timeout
            return await self._lose(f"did not open a session within {seconds:g} seconds")
        text = f"Error: no answer within {self._admission.upstream.call_timeout:g} seconds"
        if self._call is None:
            return await self._finish(failure("timeout", text))
        self._admission.end_call(self._call, failed=True)
        self._admission.forget(self._session, self._message)
        await self._give_up()
        return await self._finish(tool_failure(text, "timeout"))

    async def _give_up(self) -> None:
        """Tell the environment that nobody waits for the call any more, if it can be told at once."""
        params = {"requestId": self._message.get("id"), "reason": "it took too long"}
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self._body = json.dumps(notice).encode()
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(_CANCEL_SECONDS), self._sent():
                pass

    async def _lose(self, reason: str) -> web.StreamResponse:
        self._admission.lose(reason)
        if self._call is not None:
            self._admission.end_call(self._call, failed=True)
            self._admission.forget(self._session, self._message)
        return await self._finish(failure("environment_lost", LOST))

    async def _finish(self, said: dict[str, Any]) -> web.StreamResponse:
        """Answer in the environment's place, in the stream that was begun if there is one."""
        if "id" not in self._message:
            return self._begun or web.Response(status=404)
        data = answer(self._message, said)
        if self._begun is None:
            # Not an HTTP error: clients of the SDK take those for the end of the connection, and say less.
            return web.Response(body=data, content_type="application/json")
        await self._begun.write(event(data))
        return self._begun


async def _said(given: aiohttp.ClientResponse) -> str:
    """What a refusal says: its JSON-RPC message, or the beginning of its text."""
    text = (await given.content.read(4 * _SAID)).decode(errors="replace")
    try:
        return str(json.loads(text)["error"]["message"])[:_SAID]
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:_SAID] or str(given.reason)
