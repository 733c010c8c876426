"""The assignment of workers to sessions, first come, first served, with a bounded queue.

An agent cannot influence the worker that scores its answers: each kind of worker has a queue of its own.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aworld_train.serving.env_gateway.worker_client import WorkerClient

REPORT_SECONDS = 3.0


class Busy(Exception): ...


@dataclass(eq=False)
class WorkerSession:
    """A client's session at a worker, for the token it was opened with, until that ``expires`` (Unix time).

    ``last_active`` is when a request began or ended, ``vanished`` when the client broke off its last one (monotonic
    clock). ``requests`` are in progress, streams included. ``broken``: its worker broke off a request.
    """

    session_id: str
    link: WorkerClient
    token_id: str
    expires: float = math.inf
    is_open: bool = False
    last_active: float = field(default_factory=time.monotonic)
    requests: int = 0
    vanished: float | None = None
    broken: bool = False


class Pool:
    def __init__(self, max_queue: int):
        self.links: list[WorkerClient] = []
        self.sessions: dict[str, WorkerSession] = {}
        self._max_queue = max_queue
        self._waiting: dict[bool, deque[tuple[str, asyncio.Future[WorkerClient]]]] = {
            False: deque(),
            True: deque(),
        }

    @property
    def queued(self) -> int:
        return self._queued(False) + self._queued(True)

    def _queued(self, scoring: bool) -> int:
        return sum(not turn.done() for _, turn in self._waiting[scoring])

    def sessions_of(self, token_id: str) -> int:
        return sum(session.is_open and session.token_id == token_id for session in self.sessions.values())

    async def reserve(
        self,
        session_id: str,
        seconds: float,
        scoring: bool = False,
        report: Callable[[int, Mapping[str, int]], Awaitable[None]] | None = None,
    ) -> WorkerClient:
        """A worker for that session, which counts as one of its sessions from now on; waits in turn.

        ``report`` is called every few seconds with how many wait before it and the workers by state; what it raises
        ends the wait. Raises Busy if the queue is full, or no worker became free within ``seconds``.
        """
        turn: asyncio.Future[WorkerClient] = asyncio.get_running_loop().create_future()
        self._waiting[scoring].append((session_id, turn))
        self.dispatch()
        if not turn.done() and self._queued(scoring) > self._max_queue:
            self._waiting[scoring].pop()
            raise Busy(f"{self._max_queue} sessions are waiting for a worker already")
        if turn.done():
            return turn.result()
        try:
            # Not `asyncio.wait_for`: before Python 3.12 it swallows a cancellation that comes together with the turn.
            async with asyncio.timeout(seconds):
                while report is not None and not (await asyncio.wait({turn}, timeout=REPORT_SECONDS))[0]:
                    await report(self._ahead(session_id, scoring), self.states(scoring))
                return await asyncio.shield(turn)
        except TimeoutError:
            if not turn.cancel():  # assigned at the last moment
                return turn.result()
            raise Busy(f"no worker became free within {seconds:g} seconds") from None
        except BaseException:
            if not turn.cancel():
                self.release(turn.result(), session_id)
            raise

    def _ahead(self, session_id: str, scoring: bool) -> int:
        ahead = 0
        for waiting_id, turn in self._waiting[scoring]:
            if waiting_id == session_id:
                break
            ahead += not turn.done()
        return ahead

    def release(self, link: WorkerClient, session_id: str) -> None:
        link.sessions.discard(session_id)
        self.dispatch()

    def dispatch(self) -> None:
        """Assign free workers to waiting sessions, the least loaded worker first."""
        for scoring, waiting in self._waiting.items():
            links = [link for link in self.links if link.scoring == scoring]
            _dispatch(waiting, links)

    def states(self, scoring: bool = False) -> dict[str, int]:
        counted = dict.fromkeys(("ready", "busy", "cleaning", "down"), 0)
        for link in self.links:
            if link.scoring == scoring:
                counted[link.state] += 1
        return counted


def _dispatch(waiting: deque[tuple[str, "asyncio.Future[WorkerClient]"]], links: list[WorkerClient]) -> None:
    while waiting:
        session_id, turn = waiting[0]
        free = [] if turn.done() else [link for link in links if link.free]
        if not turn.done() and not free:
            return
        waiting.popleft()
        if free:
            link = min(free, key=lambda one: len(one.sessions))
            link.sessions.add(session_id)
            turn.set_result(link)
