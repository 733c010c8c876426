"""A model that answers by a script, behind a real socket and the OpenAI chat API: what agents are tested against.

The episode is named by the URL (``/episodes/NAME/v1``) and the agent by its key, which
is how the gateway tells them apart too.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.server_thread import ServerThread

Message = dict[str, Any]


@dataclass(frozen=True)
class RecordedRequest:
    """One request for a completion."""

    episode: str
    key: str
    body: dict[str, Any]

    @property
    def messages(self) -> list[Message]:
        """The conversation."""
        messages: list[Message] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[str]:
        """The names of the tools it offers."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]


class Unavailable(Exception):
    """Raised by a script: the request gets this HTTP status."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


Script = Callable[[RecordedRequest], Message]


def text_of(message: Message) -> str:
    """A message's text, however it is cut into parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def says(text: str) -> Message:
    """The model answers."""
    return {"role": "assistant", "content": text}


_numbers = itertools.count(1)


def calls(tool: str, **arguments: Any) -> Message:
    """The model calls a tool."""
    call = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{next(_numbers)}", "type": "function", "function": call}],
    }


def calculates(request: RecordedRequest) -> Message:
    """Asks the calculator for what the last user message asks, then answers with what it said."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return says(f"<answer>{text_of(last).strip()}</answer>")
    question = next(text_of(m) for m in reversed(request.messages) if m["role"] == "user")
    expression = re.search(r"What is (.+?)\?", question)
    tool = next((name for name in request.tools if "calculat" in name), None)
    if expression is None or tool is None:
        return says(f"I have no tool for this: {question}")
    return calls(tool, expression=expression[1])


class OpenAIStub(ServerThread):
    """``with OpenAIStub(script) as stub: stub.url("one")``; the requests it got are in ``requests``."""

    def __init__(self, script: Script = calculates, *, delay: float = 0.0):
        super().__init__()
        self.script = script
        self.delay = delay
        self.requests: list[RecordedRequest] = []
        self.max_at_once = 0
        self._at_once = 0
        self._port = 0

    def url(self, episode: str = "one") -> str:
        """The base URL of an episode."""
        return f"http://127.0.0.1:{self._port}/episodes/{episode}/v1"

    def of(self, episode: str) -> list[RecordedRequest]:
        """The requests of an episode."""
        return [request for request in self.requests if request.episode == episode]

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/episodes/{episode}/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        return runner

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        recorded = RecordedRequest(request.match_info["episode"], key, await request.json())
        self.requests.append(recorded)
        self._at_once += 1
        self.max_at_once = max(self.max_at_once, self._at_once)
        try:
            await asyncio.sleep(self.delay)
            message = self.script(recorded)
        except Unavailable as error:
            return web.json_response({"error": {"message": "out of order"}}, status=error.status)
        finally:
            self._at_once -= 1
        return web.json_response(_completion(recorded, message))


def _completion(request: RecordedRequest, message: Message) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{next(_numbers)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
