"""Limits on the memory of requests and on the duration of their bodies.

All memory is taken from one budget, of which each token has a maximal share; without room, requests queue and the
tokens take turns. A message of up to ``HELD_BYTES`` is held as a whole, a larger one streamed through a window of fixed
size, so that its length costs no memory. No body is read before its sender was admitted.
"""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from aworld_train.serving.mcp_messages import refusal

HELD_BYTES = 32 << 10
READ_BYTES = 16 << 10
"""Bytes read at a time from a connection whose message has no window; up to twice as many are buffered."""
WINDOW_READ_BYTES = 64 << 10
WINDOW_BYTES = 256 << 10
"""Memory of one message in transit: the buffers of both connections, and the chunk between them."""
MAX_MESSAGE_BYTES = 64 << 20
MAX_OPENING_BYTES = 1 << 20
BUDGET_BYTES = 96 << 20
SHARE_BYTES = 64 << 20
QUEUE_SECONDS = 20.0
STALL_SECONDS = 10.0
MIN_RATE = 16 << 10
"""Bytes per second below which a body is too slow, beyond its first ``STALL_SECONDS``."""
RETRY_AFTER = {"Retry-After": "5"}


class Refusal(Exception):
    """A request is refused; ``cause`` is its label in the metrics, and the connection is closed if it ``closes``."""

    def __init__(
        self,
        status: int,
        cause: str,
        reason: str,
        headers: dict[str, str] | None = None,
        closes: bool = False,
    ):
        super().__init__(reason)
        self.status, self.cause, self._headers, self._closes = status, cause, headers, closes

    def response(self) -> web.Response:
        response = web.json_response(refusal(str(self)), status=self.status, headers=self._headers)
        if self._closes:
            response.force_close()
        return response


@dataclass(eq=False)
class _WaitingRequest:
    amount: int
    turn: "asyncio.Future[None]"


class Budget:
    """The bytes that all requests may hold together, those of a token (``share``), and the longest wait for them."""

    def __init__(self, total: int = BUDGET_BYTES, share: int = SHARE_BYTES, seconds: float = QUEUE_SECONDS):
        self._total, self._share, self._seconds = total, share, seconds
        self._taken: Counter[str] = Counter()
        # Ordered: the token whose turn is next comes first.
        self._queues: dict[str, deque[_WaitingRequest]] = {}
        self.used = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    async def take(self, token_id: str, amount: int) -> None:
        """Take bytes from the budget; waits until there is room, and raises Refusal if there is none in time."""
        waiting = _WaitingRequest(amount, asyncio.get_running_loop().create_future())
        self._queues.setdefault(token_id, deque()).append(waiting)
        self._grant()
        if waiting.turn.done():
            return
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(waiting.turn)
        except TimeoutError:
            if not waiting.turn.cancel():  # granted at the last moment
                return
            self._leave(token_id, waiting)
            raise Refusal(
                503,
                "memory",
                f"the gateway had no memory for this within {self._seconds:g} seconds",
                RETRY_AFTER,
            ) from None
        except asyncio.CancelledError:
            if waiting.turn.cancel():
                self._leave(token_id, waiting)
            else:
                self.release(token_id, amount)
            raise

    def release(self, token_id: str, amount: int) -> None:
        self._book(token_id, -amount)
        if self._queues:
            self._grant()

    def _book(self, token_id: str, amount: int) -> None:
        self.used += amount
        self._taken[token_id] += amount
        if not self._taken[token_id]:
            del self._taken[token_id]

    def _leave(self, token_id: str, waiting: _WaitingRequest) -> None:
        self._queues[token_id].remove(waiting)
        if not self._queues[token_id]:
            del self._queues[token_id]
        self._grant()

    def _grant(self) -> None:
        """Grant waiting requests their room: the tokens in turn, and of each token the oldest request.

        A token without room in its share is skipped. A request without room in the budget blocks the others, or smaller
        ones would always come first.
        """
        skipped = 0
        while skipped < len(self._queues):
            token_id = next(iter(self._queues))
            queue = self._queues[token_id]
            amount = queue[0].amount
            in_share = self._taken[token_id] + amount <= self._share
            if in_share and self.used + amount > self._total:
                return
            del self._queues[token_id]
            if in_share:
                self._book(token_id, amount)
                queue.popleft().turn.set_result(None)
                skipped = 0
            else:
                skipped += 1
            if queue:
                self._queues[token_id] = queue


class ByteAllowance:
    """The bytes that one request has taken from the budget; all are returned when the request is over."""

    def __init__(self, budget: Budget, token_id: str):
        self._budget, self._token_id, self._taken = budget, token_id, 0

    def __enter__(self) -> "ByteAllowance":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._taken:
            self.release(self._taken)

    async def take(self, amount: int) -> None:
        await self._budget.take(self._token_id, amount)
        self._taken += amount

    def release(self, amount: int) -> None:
        amount = min(amount, self._taken)
        self._taken -= amount
        self._budget.release(self._token_id, amount)


class RequestBody:
    def __init__(self, request: web.Request, account: ByteAllowance, max_bytes: int):
        self._content, self._account, self._max_bytes = request.content, account, max_bytes
        self._transport = request.transport
        self._exists, self._length = request.body_exists, request.content_length
        self._received = 0
        self._client_seconds = 0.0
        self.refusal: Refusal | None = None
        """Why it could not be read to its end; None if it could."""
        if "Content-Encoding" in request.headers:
            raise Refusal(415, "body", "bodies are taken as they are, without a Content-Encoding")
        if self._length is not None and self._length > max_bytes:
            raise self._too_large()

    async def read(self) -> bytes:
        limit = self._max_bytes if self._length is None else self._length
        await self._account.take(limit)
        parts = await self._read_at_least(limit)
        self._account.release(limit - self._received)
        return b"".join(parts)

    async def read_or_stream(self) -> "bytes | AsyncIterator[bytes]":
        """The whole body if it is short; otherwise its chunks as they arrive."""
        if not self._exists:
            return b""
        held = HELD_BYTES if self._length is None else min(HELD_BYTES, self._length)
        await self._account.take(held)
        parts = await self._read_at_least(held)
        if self._content.at_eof():
            return b"".join(parts)
        await self._account.take(WINDOW_BYTES)
        return self._stream(parts, held + WINDOW_BYTES)

    async def _read_at_least(self, amount: int) -> list[bytes]:
        parts = []
        while self._received <= amount and (chunk := await self._chunk()):
            parts.append(chunk)
        return parts

    async def _stream(self, parts: list[bytes], taken: int) -> AsyncIterator[bytes]:
        try:
            limit_reads(self._transport, WINDOW_READ_BYTES)
            for part in parts:
                yield part
            while chunk := await self._chunk():
                yield chunk
        except Refusal as refusal:
            self.refusal = refusal
            raise
        finally:
            limit_reads(self._transport, READ_BYTES)
            self._account.release(taken)

    async def _chunk(self) -> bytes:
        """The next chunk; empty at the end. Only the time spent waiting for the client counts as slow."""
        try:
            chunk = self._content.read_nowait()
            if not chunk and not self._content.is_eof():
                started = time.monotonic()
                remaining = STALL_SECONDS + self._received / MIN_RATE - self._client_seconds
                async with asyncio.timeout(min(STALL_SECONDS, remaining)):
                    chunk = await self._content.readany()
                self._client_seconds += time.monotonic() - started
        except TimeoutError:
            raise Refusal(408, "slow", "the body came too slowly", closes=True) from None
        except web.RequestPayloadError:
            raise Refusal(400, "body", "the body is not encoded as HTTP says", closes=True) from None
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise self._too_large()
        return chunk

    def _too_large(self) -> Refusal:
        return Refusal(413, "body", f"a message here has at most {self._max_bytes} bytes", closes=True)


def part_of(message: "bytes | AsyncIterator[bytes]", name: str) -> object:
    if not isinstance(message, bytes):
        return None
    try:
        fields = json.loads(message)
        return fields.get(name) if isinstance(fields, dict) else None
    except (ValueError, RecursionError):
        return None


def limit_reads(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Limit the bytes that a transport reads at a time, by an attribute of asyncio's selector loop."""
    if transport is not None:
        transport.max_size = size  # type: ignore[attr-defined]
