"""A gateway over a real socket, and conversations that answer from a script and record the requests."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aworld_train.rollout.images import TEXT_ONLY
from aworld_train.rollout.messages import ChatRequest, Completion
from aworld_train.rollout.model_gateway import ModelGateway, ModelGatewaySession
from aworld_train.rollout.response_constraints import RequestRules

MODEL = "test/model-1"
Answer = Completion | BaseException | Callable[[ChatRequest], Completion]


@dataclass
class Scripted:
    """Gives ``answers`` in order, then the last one again and again; an answer that is an exception is raised.

    Attributes:
        gate: Answers wait for it.
        requests: The requests that came.
        started: Set once a request has come.
        cancelled: Set once one was cancelled.
        lost: The answers that may not have reached the client.
        sent: How many of them were sent.
        overlong: How many requests were refused for their size.
    """

    answers: list[Answer]
    gate: asyncio.Event | None = None
    requests: list[ChatRequest] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    lost: list[Completion] = field(default_factory=list)
    sent: int = 0
    overlong: int = 0

    async def complete(self, request: ChatRequest) -> Completion:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        self.started.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer(request) if callable(answer) else answer

    def undelivered(self, completion: Completion, was_sent: bool = False) -> None:
        self.lost.append(completion)
        self.sent += was_sent

    def note_overlong(self) -> None:
        self.overlong += 1

    async def count_tokens(self, request: ChatRequest) -> int:
        return sum(len(message.content) for message in request.messages)


@asynccontextmanager
async def serving() -> AsyncIterator[ModelGateway]:
    """A gateway in this event loop."""
    gateway = ModelGateway()
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def rollout_session(
    *answers: Answer, gate: asyncio.Event | None = None, strict: bool = False, images: bool = False
) -> AsyncIterator[tuple[ModelGatewaySession, Scripted]]:
    """A gateway in this event loop, and one rollout whose only agent has one conversation."""
    async with serving() as gateway:
        scripted = Scripted(list(answers), gate)
        rules = RequestRules(strict, {"enable_thinking": False}, no_images="" if images else TEXT_ONLY)
        yield gateway.open_session(MODEL, lambda agent: scripted, rules), scripted


@contextmanager
def rollout_session_in_thread(*answers: Answer) -> Iterator[tuple[ModelGatewaySession, Scripted]]:
    """The same in a thread of its own, for tests that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gateway, scripted = ModelGateway(), Scripted(list(answers))
    asyncio.run_coroutine_threadsafe(gateway.start(), loop).result(10)
    try:
        yield gateway.open_session(MODEL, lambda agent: scripted), scripted
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
