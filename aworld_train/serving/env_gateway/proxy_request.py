"""One request and its response, between a client and the worker of its session: short messages as a whole, long ones in
chunks. A client whose worker is lost gets a JSON-RPC error; one that does not read its response is disconnected.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from aworld_train.serving.channel import CHECK_HEADER
from aworld_train.serving.env_gateway.pool import WorkerSession
from aworld_train.serving.env_gateway.request_limits import (
    HELD_BYTES,
    READ_BYTES,
    WINDOW_BYTES,
    WINDOW_READ_BYTES,
    ByteAllowance,
    Refusal,
    limit_reads,
    part_of,
)
from aworld_train.serving.mcp_messages import SESSION_HEADER, error, json_event

_FORWARDED_HEADERS = (
    *("Accept", "Content-Type", "Last-Event-ID", "MCP-Protocol-Version", "MCP_SERVERS", "MCP-Servers"),
    CHECK_HEADER,
)
_WRITE_SECONDS = 30.0
_WORKER_LOST = "the worker of this session was lost; what it did is gone, and a new session has to be opened"


async def forward(
    request: web.Request,
    session: WorkerSession,
    message: bytes | AsyncIterator[bytes],
    account: ByteAllowance,
    opening: bool = False,
) -> web.StreamResponse:
    """Forward a message to the worker and return its response; 502 if the worker was lost during the opening."""
    headers = _forwarded_headers(request)
    headers[SESSION_HEADER] = session.session_id
    session.requests += 1
    session.vanished = None
    response: web.StreamResponse | None = None
    try:
        async with session.link.request(request.method, "/mcp", headers=headers, data=message) as answer:
            response_headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if opening and answer.status < 400:
                response_headers[SESSION_HEADER] = session.session_id
            length = answer.content_length
            if opening or (length is not None and length <= HELD_BYTES):
                return web.Response(body=await answer.read(), status=answer.status, headers=response_headers)
            _limit_reads(answer, READ_BYTES)
            if length is not None:
                await account.take(WINDOW_BYTES)
                _limit_reads(answer, WINDOW_READ_BYTES)
            response = web.StreamResponse(status=answer.status, headers=response_headers)
            response.content_length = length
            await response.prepare(request)
            await _copy(answer, request, response, account)
            return response
    except asyncio.CancelledError:
        session.vanished = time.monotonic()
        raise
    except (aiohttp.ClientError, OSError):
        if request.transport is None or request.transport.is_closing():
            session.vanished = time.monotonic()
            raise
        session.broken = True
        if opening:
            return Refusal(502, "worker_lost", _WORKER_LOST).response()
        return await _report_lost_worker(request, message, response)
    finally:
        session.requests -= 1
        session.last_active = time.monotonic()


def _forwarded_headers(request: web.Request) -> dict[str, str]:
    headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
    if not all(map(str.isascii, headers.values())):
        raise Refusal(400, "header", "the headers are not all ASCII")
    return headers


async def _copy(
    answer: aiohttp.ClientResponse, request: web.Request, response: web.StreamResponse, account: ByteAllowance
) -> None:
    """Copy a worker's response to its client; an event stream gets a window once it turns out to be long.

    Raises ConnectionResetError where the client does not read it, or memory for it is lacking.
    """
    may_need_window, copied = answer.content_length is None, 0
    try:
        async for chunk in answer.content.iter_any():
            copied += len(chunk)
            if may_need_window and copied > HELD_BYTES:
                may_need_window = False
                await account.take(WINDOW_BYTES)
                _limit_reads(answer, WINDOW_READ_BYTES)
            async with asyncio.timeout(_WRITE_SECONDS):
                await response.write(chunk)
    except (Refusal, TimeoutError) as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not take its response") from error


def _limit_reads(answer: aiohttp.ClientResponse, size: int) -> None:
    """Limit how much is read at a time from the worker; a response that was read completely needs no limit."""
    if answer.connection is not None:
        limit_reads(answer.connection.transport, size)


async def _report_lost_worker(
    request: web.Request, message: bytes | AsyncIterator[bytes], started: web.StreamResponse | None
) -> web.StreamResponse:
    number = part_of(message, "id")
    reply = {"jsonrpc": "2.0", "id": number, "error": error("worker_lost", _WORKER_LOST)}
    if started is None:
        return web.json_response(reply, status=200 if number is not None else 404)
    if started.content_length is not None:
        started.force_close()  # the client waits for the missing bytes until then
    elif number is not None:
        await started.write(json_event(reply))
    return started
