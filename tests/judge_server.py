"""A judge behind a real socket with the OpenAI chat API, which answers by a test's script: honestly or with a fault.

It knows the right verdict: an answer is right if it equals the reference. The script answers each request; the default
one is an honest judge. Run as a program it is honest after ``--latency`` seconds, and prints its address.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aiohttp import web

from tests.server_thread import ServerThread

PROMPT_TOKENS, COMPLETION_TOKENS = 1000, 100
_TEXT = re.compile(r"<(question|reference|answer)-([0-9a-f]+)>\n(.*?)\n</\1-\2>", re.DOTALL)


@dataclass(frozen=True)
class ParsedRequest:
    """One request for a verdict."""

    request: web.Request
    body: dict[str, Any]

    @cached_property
    def texts(self) -> dict[str, str]:
        """The texts between the delimiters: question, reference and answer."""
        return {match[1]: match[3] for match in _TEXT.finditer(self.body["messages"][-1]["content"])}

    @property
    def structured(self) -> bool:
        """Whether it asks for a structured answer."""
        return "response_format" in self.body

    @property
    def right(self) -> str:
        """The right verdict."""
        texts = self.texts
        return "correct" if texts["answer"] == texts["reference"] else "incorrect"

    @property
    def wrong(self) -> str:
        """The wrong verdict."""
        return "incorrect" if self.right == "correct" else "correct"


Script = Callable[[ParsedRequest], Awaitable[web.StreamResponse]]


def completion(content: Any, finish: str = "stop", status: int = 200) -> web.Response:
    """A chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
    return web.json_response({"choices": [choice], "usage": usage}, status=status)


def verdict_reply(parsed: ParsedRequest, verdict: str) -> web.Response:
    """A verdict in the form that the request demands."""
    if parsed.structured:
        return completion(json.dumps({"reason": "I compared them.", "verdict": verdict}))
    return completion(f"I compared them.\nVERDICT: {verdict.upper()}")


async def honest(parsed: ParsedRequest) -> web.StreamResponse:
    """The right verdict."""
    return verdict_reply(parsed, parsed.right)


class JudgeServer(ServerThread):
    """``with JudgeServer(script) as server: server.url``; its requests are in ``requests``."""

    def __init__(self, script: Script = honest):
        super().__init__()
        self.script = script
        self.requests: list[ParsedRequest] = []
        self.max_concurrent = 0
        self._concurrent = 0
        self.url = ""

    async def _start(self) -> web.AppRunner:
        runner = await _serve(self._answer)
        self.url = _address(runner)
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parsed = ParsedRequest(request, await request.json())
        self.requests.append(parsed)
        self._concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self._concurrent)
        try:
            return await self.script(parsed)
        finally:
            self._concurrent -= 1


async def _serve(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.AppRunner:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    return runner


def _address(runner: web.AppRunner) -> str:
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


async def _honest_for_ever(latency: float) -> None:
    loop = asyncio.get_running_loop()

    async def answer(request: web.Request) -> web.StreamResponse:
        arrived = loop.time()
        verdict = await honest(ParsedRequest(request, await request.json()))
        await asyncio.sleep(
            arrived + latency - loop.time()
        )  # the latency includes the time that the judge itself needs
        return verdict

    print(_address(await _serve(answer)), flush=True)  # noqa: T201 - the parent process reads this
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    asyncio.run(_honest_for_ever(parser.parse_args().latency))
