"""What requests may hold in memory, and how long their bodies may take.

Every byte that a request makes the gateway hold is taken from one budget first, of which each token has a share; where
there is no room, requests wait in line, the tokens in turn. A message of up to ``HELD_BYTES`` is held as a whole. A
larger one streams through a window of fixed size to where it goes, and so does a large response: its length costs time
and no memory. Nothing of a body is read before its sender was admitted.
"""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType

from aiohttp import web

HELD_BYTES = 32 << 10
READ_BYTES = 16 << 10
"""What is read at a time from a connection whose message has no window; twice as much is buffered."""
WINDOW_READ_BYTES = 64 << 10
WINDOW_BYTES = 256 << 10
"""What one message in transit may occupy: the buffers of both connections, and what is on its way between them."""
MAX_MESSAGE_BYTES = 64 << 20
MAX_OPENING_BYTES = 1 << 20
BUDGET_BYTES = 96 << 20
SHARE_BYTES = 64 << 20
LINE_SECONDS = 20.0
STALL_SECONDS = 10.0
MIN_RATE = 16 << 10
"""Bytes per second below which a body is too slow, beyond its first ``STALL_SECONDS``."""
_RETRY_AFTER = {"Retry-After": "5"}
_INVALID_REQUEST = -32600  # from the JSON-RPC 2.0 specification


class Refusal(Exception):
    """A request is not served.

    Args:
        status: Of the response.
        cause: In a word, for the metrics.
        reason: For the client.
        headers: Of the response.
        closes: Whether the connection ends with it.
    """

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
        """How the client learns of it."""
        error = {"code": _INVALID_REQUEST, "message": str(self)}
        response = web.json_response(
            {"jsonrpc": "2.0", "id": None, "error": error}, status=self.status, headers=self._headers
        )
        if self._closes:
            response.force_close()
        return response


@dataclass(eq=False)
class _Waiting:
    amount: int
    turn: "asyncio.Future[None]"


class Budget:
    """Bytes that all requests may hold together.

    Args:
        total: Of all tokens.
        share: Of one token.
        seconds: How long a request waits for room.
    """

    def __init__(self, total: int = BUDGET_BYTES, share: int = SHARE_BYTES, seconds: float = LINE_SECONDS):
        self._total, self._share, self._seconds = total, share, seconds
        self._taken: Counter[str] = Counter()
        self._lines: dict[str, deque[_Waiting]] = {}  # the token whose turn is next comes first
        self.used = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return sum(map(len, self._lines.values()))

    async def take(self, token_id: str, amount: int) -> None:
        """Take so many bytes; waits until there is room.

        Raises:
            Refusal: There was none in time.
        """
        has_room = self.used + amount <= self._total and self._taken[token_id] + amount <= self._share
        if has_room and not self._lines:
            self._book(token_id, amount)
            return
        waiting = _Waiting(amount, asyncio.get_running_loop().create_future())
        self._lines.setdefault(token_id, deque()).append(waiting)
        self._grant()
        if waiting.turn.done():
            return
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(waiting.turn)
        except TimeoutError:
            if not waiting.turn.cancel():  # it came in the last moment
                return
            self._leave(token_id, waiting)
            raise Refusal(
                503,
                "memory",
                f"the gateway had no memory for this within {self._seconds:g} seconds",
                _RETRY_AFTER,
            ) from None
        except asyncio.CancelledError:
            if waiting.turn.cancel():
                self._leave(token_id, waiting)
            else:
                self.give(token_id, amount)
            raise

    def give(self, token_id: str, amount: int) -> None:
        """Give back what was taken."""
        self._book(token_id, -amount)
        if self._lines:
            self._grant()

    def _book(self, token_id: str, amount: int) -> None:
        self.used += amount
        self._taken[token_id] += amount
        if not self._taken[token_id]:
            del self._taken[token_id]

    def _leave(self, token_id: str, waiting: _Waiting) -> None:
        self._lines[token_id].remove(waiting)
        if not self._lines[token_id]:
            del self._lines[token_id]
        self._grant()

    def _grant(self) -> None:
        """Give room to those who wait: the tokens in turn, and of each token who came first.

        A token without room in its share is passed over. One that lacks room in the budget holds up the others: it
        would never find any if smaller requests went first.
        """
        passed_over = 0
        while passed_over < len(self._lines):
            token_id = next(iter(self._lines))
            line = self._lines[token_id]
            amount = line[0].amount
            in_share = self._taken[token_id] + amount <= self._share
            if in_share and self.used + amount > self._total:
                return
            del self._lines[token_id]
            if in_share:
                self._book(token_id, amount)
                line.popleft().turn.set_result(None)
                passed_over = 0
            else:
                passed_over += 1
            if line:
                self._lines[token_id] = line


class ByteAllowance:
    """What one request has taken from the budget; all of it is given back when the request is over."""

    def __init__(self, budget: Budget, token_id: str):
        self._budget, self._token_id, self._taken = budget, token_id, 0

    def __enter__(self) -> "ByteAllowance":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken:
            self.give(self._taken)

    async def take(self, amount: int) -> None:
        """See ``Budget.take``."""
        await self._budget.take(self._token_id, amount)
        self._taken += amount

    def give(self, amount: int) -> None:
        """See ``Budget.give``; a request that is over has nothing to give."""
        amount = min(amount, self._taken)
        self._taken -= amount
        self._budget.give(self._token_id, amount)


class RequestBody:
    """The body of a request, as it comes.

    Args:
        request: Whose.
        account: What it holds is taken from there.
        max_bytes: A longer one is refused.

    Raises:
        Refusal: It says itself that it is too long, or is compressed: nobody knows how long that is.
    """

    def __init__(self, request: web.Request, account: ByteAllowance, max_bytes: int):
        self._content, self._account, self._max_bytes = request.content, account, max_bytes
        self._transport = request.transport
        self._exists, self._length = request.body_exists, request.content_length
        self._received = 0
        self._waited = 0.0
        self.refusal: Refusal | None = None
        """Why it could not be read to its end, once that is so."""
        if "Content-Encoding" in request.headers:
            raise Refusal(415, "body", "bodies are taken as they are, without a Content-Encoding")
        if self._length is not None and self._length > max_bytes:
            raise self._too_long()

    async def read(self) -> bytes:
        """All of it, held until the request is over.

        Raises:
            Refusal: It is too long or too slow, or there is no memory for it.
        """
        limit = self._max_bytes if self._length is None else self._length
        await self._account.take(limit)
        parts = await self._read_up_to(limit)
        self._account.give(limit - self._received)
        return b"".join(parts)

    async def read_or_stream(self) -> "bytes | AsyncIterator[bytes]":
        """All of it, if it is short; otherwise its parts, to be taken as they come.

        Raises:
            Refusal: It is too long or too slow, or there is no memory for it.
        """
        if not self._exists:
            return b""
        held = HELD_BYTES if self._length is None else min(HELD_BYTES, self._length)
        await self._account.take(held)
        parts = await self._read_up_to(held)
        if self._content.at_eof():
            return b"".join(parts)
        await self._account.take(WINDOW_BYTES)
        return self._stream(parts, held + WINDOW_BYTES)

    async def _read_up_to(self, amount: int) -> list[bytes]:
        """Its first parts: all of them, or a little more than ``amount``."""
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
            self._account.give(taken)

    async def _chunk(self) -> bytes:
        """What has come since; empty at the end. Only the time for which the client is waited for counts."""
        chunk = self._content.read_nowait()
        if not chunk and not self._content.is_eof():
            began = time.monotonic()
            left = STALL_SECONDS + self._received / MIN_RATE - self._waited
            try:
                async with asyncio.timeout(min(STALL_SECONDS, left)):
                    chunk = await self._content.readany()
            except TimeoutError:
                raise Refusal(408, "slow", "the body came too slowly", closes=True) from None
            except web.RequestPayloadError:
                raise Refusal(400, "body", "the body is not encoded as HTTP says", closes=True) from None
            self._waited += time.monotonic() - began
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise self._too_long()
        return chunk

    def _too_long(self) -> Refusal:
        return Refusal(413, "body", f"a message here has at most {self._max_bytes} bytes", closes=True)


def part_of(message: "bytes | AsyncIterator[bytes]", name: str) -> object:
    """That part of a message; None where it has none, is no message, or was not held."""
    if not isinstance(message, bytes):
        return None
    try:
        found = json.loads(message)
        return found.get(name) if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


def limit_reads(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Have no more than that read at a time.

    It is an attribute of the transports of asyncio's selector loop, which documents only their default.
    """
    if transport is not None:
        transport.max_size = size  # type: ignore[attr-defined]
