"""A gateway over a real socket, and conversations that answer from a script and keep what they were asked."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aworld_train.rollout.messages import ChatRequest, Completion
from aworld_train.rollout.model_gateway import LlmGateway, ModelGatewaySession

MODEL = "test/model-1"
Answer = Completion | BaseException | Callable[[ChatRequest], Completion]


@dataclass
class Scripted:
    """Gives ``answers`` in order and the last one for ever; one that is an exception is raised.

    Attributes:
        gate: Answers wait for it.
        asked: The requests.
        begun: Set once one has come.
        cancelled: Set once one was cancelled.
    """

    answers: list[Answer]
    gate: asyncio.Event | None = None
    asked: list[ChatRequest] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: ChatRequest) -> Completion:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(request)
        self.begun.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer(request) if callable(answer) else answer


@asynccontextmanager
async def serving() -> AsyncIterator[LlmGateway]:
    """A gateway in this event loop."""
    gateway = LlmGateway()
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def admitted(
    *answers: Answer, gate: asyncio.Event | None = None
) -> AsyncIterator[tuple[ModelGatewaySession, Scripted]]:
    """A gateway in this event loop, and one rollout whose only agent has one conversation."""
    async with serving() as gateway:
        scripted = Scripted(list(answers), gate)
        yield gateway.admit(MODEL, lambda agent: scripted), scripted


@contextmanager
def admitted_in_thread(*answers: Answer) -> Iterator[tuple[ModelGatewaySession, Scripted]]:
    """The same in a thread of its own, for tests that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gateway, scripted = LlmGateway(), Scripted(list(answers))
    asyncio.run_coroutine_threadsafe(gateway.start(), loop).result(10)
    try:
        yield gateway.admit(MODEL, lambda agent: scripted), scripted
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
