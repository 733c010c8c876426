"""One request and its response, between a client and the worker of its session.

Short ones are passed on as a whole, long ones as they come. Where the worker is lost meanwhile, the client is told so
in the terms of JSON-RPC; where the client takes nothing any more, its connection is closed.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from aworld_train.serving.env_gateway.intake import (
    HELD_BYTES,
    READ_BYTES,
    WINDOW_BYTES,
    WINDOW_READ_BYTES,
    ByteAllowance,
    Refusal,
    limit_reads,
    part_of,
)
from aworld_train.serving.env_gateway.pool import WorkerSession

SESSION_HEADER = "Mcp-Session-Id"
_PASSED_ON = ("Accept", "Content-Type", "Last-Event-ID", "MCP-Protocol-Version", "MCP_SERVERS", "MCP-Servers")
_WRITE_SECONDS = 30.0
"""For a client to take what was written to it."""
_SERVER_ERROR = -32000  # from the range that the JSON-RPC 2.0 specification leaves to servers
_WORKER_LOST = "the worker of this session was lost; what it did is gone, and a new session has to be opened"


async def pass_on(
    request: web.Request,
    session: WorkerSession,
    message: bytes | AsyncIterator[bytes],
    account: ByteAllowance,
    opening: bool = False,
) -> web.StreamResponse:
    """The worker's answer to a message; 502 where there was none and the session was only being opened."""
    headers = _passed_on(request)
    headers[SESSION_HEADER] = session.session_id
    session.requests += 1
    session.vanished = None
    response: web.StreamResponse | None = None
    try:
        async with session.link.request(request.method, "/mcp", headers=headers, data=message) as answer:
            given = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if opening and answer.status < 400:
                given[SESSION_HEADER] = session.session_id
            length = answer.content_length
            if length is not None and length <= HELD_BYTES:
                return web.Response(body=await answer.read(), status=answer.status, headers=given)
            _limit_reads(answer, READ_BYTES)
            if length is not None:
                await account.take(WINDOW_BYTES)
                _limit_reads(answer, WINDOW_READ_BYTES)
            response = web.StreamResponse(status=answer.status, headers=given)
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
        if opening:
            return Refusal(502, "worker_lost", _WORKER_LOST).response()
        return await _say_lost(request, message, response)
    finally:
        session.requests -= 1
        session.last_seen = time.monotonic()


def _passed_on(request: web.Request) -> dict[str, str]:
    """The headers of a request that a worker gets.

    Raises:
        Refusal: They are no text.
    """
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    if not all(map(str.isascii, headers.values())):
        raise Refusal(400, "header", "the headers are not all ASCII")
    return headers


async def _copy(
    answer: aiohttp.ClientResponse, request: web.Request, response: web.StreamResponse, account: ByteAllowance
) -> None:
    """Write what comes from a worker to its client.

    A stream of events says nothing of its length: it gets its window when it turns out to be long.

    Raises:
        ConnectionResetError: The client does not take it, or there is no memory for it; its connection is closed.
    """
    may_be_short, copied = answer.content_length is None, 0
    try:
        async for chunk in answer.content.iter_any():
            copied += len(chunk)
            if may_be_short and copied > HELD_BYTES:
                may_be_short = False
                await account.take(WINDOW_BYTES)
                _limit_reads(answer, WINDOW_READ_BYTES)
            async with asyncio.timeout(_WRITE_SECONDS):
                await response.write(chunk)
    except (Refusal, TimeoutError) as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not take its response") from error


def _limit_reads(answer: aiohttp.ClientResponse, size: int) -> None:
    """Have no more than that read at a time from the worker; where all has been read already, there is no limit."""
    if answer.connection is not None:
        limit_reads(answer.connection.transport, size)


async def _say_lost(
    request: web.Request, message: bytes | AsyncIterator[bytes], begun: web.StreamResponse | None
) -> web.StreamResponse:
    """The answer to a request whose worker was lost, in the stream that was begun if there is one."""
    number = part_of(message, "id")
    error = {"code": _SERVER_ERROR, "message": _WORKER_LOST, "data": {"type": "worker_lost"}}
    reply = {"jsonrpc": "2.0", "id": number, "error": error}
    if begun is None:
        return web.json_response(reply, status=200 if number is not None else 404)
    if number is not None and begun.content_length is None:
        await begun.write(b"event: message\ndata: " + json.dumps(reply).encode() + b"\n\n")
    return begun
