"""An OpenAI-compatible endpoint whose answers depend on question and seed alone, and which can fail in every way.

So the numbers of an evaluation must be the same however often requests fail.
"""

import asyncio
import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from tests.server_thread import ServerThread

FAULTS = ("429", "500", "503", "hang", "cut", "no_json", "no_completion", "reset")
Answer = Callable[[str, int | None], str]


def mostly_right(question: str, seed: int | None) -> str:
    """The sum of the numbers in a question, in seven of ten cases."""
    drawn = random.Random(hashlib.sha256(f"{question} {seed}".encode()).digest()).random()
    total = sum(map(int, re.findall(r"-?\d+", question)))
    return f"Let me add. <answer>{total if drawn < 0.7 else total + 1}</answer>"


class FaultyEndpoint(ServerThread):
    """``with FaultyEndpoint() as endpoint: endpoint.url``.

    Args:
        answer: The answer's text, by the last user message and the request's seed.
        fault_share: The share of requests that fail.
        faults: The ways in which they fail.
        max_at_once: More requests than these at the same time are refused with 429.
        seconds: How long an answer takes, by a random source of its own.
        key: The key that it takes; any where it is None.
        models: The names of its models.
    """

    def __init__(
        self,
        answer: Answer = mostly_right,
        *,
        fault_share: float = 0.0,
        faults: Sequence[str] = FAULTS,
        max_at_once: int | None = None,
        seconds: Callable[[random.Random], float] = lambda rng: 0.0,
        key: str | None = None,
        models: Sequence[str] = ("mock",),
    ):
        super().__init__()
        self._answer, self._share, self._faults, self._max_at_once = answer, fault_share, faults, max_at_once
        self._seconds, self._key, self._models = seconds, key, models
        self._rng = random.Random(7)
        self._at_once = 0
        self.requests = 0
        self.most_at_once = 0
        self.failed: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self._port = 0

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        self._port = runner.addresses[0][1]
        return runner

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": name} for name in self._models]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if self._key is not None and request.headers.get("Authorization") != f"Bearer {self._key}":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        body = await request.json()
        self.requests += 1
        if len(self.bodies) < 100:
            self.bodies.append(body)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self._max_at_once is not None and self._at_once > self._max_at_once:
                self.failed["429"] += 1
                return web.json_response({"error": {"message": "slow down"}}, status=429)
            if self._rng.random() < self._share:
                return await self._fail(request, self._rng.choice(list(self._faults)))
            await asyncio.sleep(self._seconds(self._rng))
            question = next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user")
            return web.json_response(completion(self._answer(question, body.get("seed"))))
        finally:
            self._at_once -= 1

    async def _fail(self, request: web.Request, fault: str) -> web.StreamResponse:
        self.failed[fault] += 1
        match fault:
            case "429" | "503":
                return web.Response(status=int(fault), headers={"Retry-After": "0.05"}, text="too many")
            case "quota":
                error = {"message": "You exceeded your current quota.", "code": "insufficient_quota"}
                return web.json_response({"error": error}, status=429)
            case "500":
                return web.json_response({"error": {"message": "out of order"}}, status=500)
            case "hang":
                await asyncio.sleep(3600)
            case "no_json":
                return web.Response(text='{"choices": [{"mess', content_type="application/json")
            case "no_completion":
                return web.json_response({"choices": [{"text": "what is a message?"}]})
            case "cut":
                response = web.StreamResponse(headers={"Content-Length": "4000"})
                await response.prepare(request)
                await response.write(b'{"choices": [')
                assert request.transport is not None
                request.transport.close()
                return response
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


def completion(text: str, **choice: Any) -> dict[str, Any]:
    """A chat completion with a text."""
    message = {"role": "assistant", "content": text}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42},
    }
