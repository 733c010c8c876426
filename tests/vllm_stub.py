"""vLLM's completions endpoint as far as this project uses it, behind a real socket, for what a real one does seldom.

Token ids in and token ids out, as vLLM answers a request with ``return_token_ids`` (docs.vllm.ai, OpenAI-compatible
server). It has a thread and an event loop of its own, so that this process and others can ask it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Self

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class VllmStub:
    """``with VllmStub(draw) as server: server.url``.

    Args:
        draw: The tokens that follow a prompt of tokens.
        model: The name under which the model is served.
        key: The only key that is taken; None takes any and none.
        withheld: What a choice does not have: ``token_ids``, ``logprobs``.
        logprobs: The log-probabilities, whatever was sampled.
        finish_reason: Why a completion ended.
        error: Status and text that every completion ends in.
        replaced: By path, what answers there instead.
        processed: Whether log-probabilities are those of the distribution that is sampled, as vLLM returns them with
            ``--logprobs-mode processed_logprobs``.
        port: Where it listens; 0 takes any that is free.
    """

    def __init__(
        self,
        draw: Callable[[list[int]], list[int]],
        *,
        model: str = "served",
        key: str | None = None,
        withheld: Collection[str] = (),
        logprobs: list[float | None] | None = None,
        finish_reason: str = "stop",
        error: tuple[int, str] | None = None,
        replaced: Mapping[str, Handler] | None = None,
        processed: bool = True,
        port: int = 0,
    ):
        self._draw = draw
        self._model = model
        self._key = key
        self._withheld = withheld
        self._logprobs = logprobs
        self._finish_reason = finish_reason
        self._error = error
        self._replaced = replaced or {}
        self._port = port
        self._processed = processed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.asked_for_models = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._runner = self._run(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/v1/models", self._replaced.get("models", self._models))
        app.router.add_post("/v1/completions", self._replaced.get("completions", self._complete))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    def _refused(self, request: web.Request) -> web.Response | None:
        self.headers.append(dict(request.headers))
        given = request.headers.get("Authorization")
        if self._key is None or given == f"Bearer {self._key}":
            return None
        return web.json_response({"error": f"unauthorized: {given}"}, status=401)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        self.asked_for_models += 1
        return self._refused(request) or web.json_response({"data": [{"id": self._model}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if refused := self._refused(request):
            return refused
        if self._error:
            return web.Response(status=self._error[0], text=self._error[1])
        body = await request.json()
        if body["logprobs"]:
            warmth = body["temperature"] if self._processed else 1.0
            top = {f"token_id:{token}": -1.5 * token / warmth for token in range(body["logprobs"])}
            return web.json_response({"choices": [{"logprobs": {"top_logprobs": [top]}}]})
        self.bodies.append(body)
        tokens = self._draw(body["prompt"])[: body["max_tokens"]]
        logprobs = self._logprobs or [-0.5 * (place + 1) for place in range(len(tokens))]
        choice = {
            "index": 0,
            "text": "",
            "finish_reason": self._finish_reason,
            "token_ids": tokens if body.get("return_token_ids") else None,
            "logprobs": None if body.get("logprobs") is None else {"token_logprobs": logprobs},
        }
        kept = {name: value for name, value in choice.items() if name not in self._withheld}
        return web.json_response({"model": body["model"], "choices": [kept]})
