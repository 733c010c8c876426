"""Which session has which worker, and who waits for one: first come, first served, in a queue with an end.

Some workers are for scoring alone: what an agent did to a worker must not reach what its answers are scored with. Those
who wait for one kind do not wait for the other.
"""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field

from aworld_train.serving.env_gateway.link import WorkerLink


class Busy(Exception):
    """No worker for a new session; the text says why."""


@dataclass(eq=False)
class WorkerSession:
    """A client's session.

    Attributes:
        session_id: Its name.
        link: Its worker.
        token_id: The token it was opened with; others do not see it.
        expires: When that token expires (Unix time, seconds).
        is_open: Whether its worker has answered that it is.
        last_seen: When a request began or ended (monotonic clock, seconds).
        requests: How many are under way, streams included.
        vanished: When the client broke off a request, if it has not been heard of since.
    """

    session_id: str
    link: WorkerLink
    token_id: str
    expires: float = math.inf
    is_open: bool = False
    last_seen: float = field(default_factory=time.monotonic)
    requests: int = 0
    vanished: float | None = None


class Pool:
    """Workers and the queue in front of them.

    Args:
        longest_queue: Most sessions that wait.
    """

    def __init__(self, longest_queue: int):
        self.links: list[WorkerLink] = []
        self.sessions: dict[str, WorkerSession] = {}
        self._longest_queue = longest_queue
        self._waiting: dict[bool, deque[tuple[str, asyncio.Future[WorkerLink]]]] = {
            False: deque(),
            True: deque(),
        }

    @property
    def queued(self) -> int:
        return self._queued(False) + self._queued(True)

    def _queued(self, scoring: bool) -> int:
        return sum(not turn.done() for _, turn in self._waiting[scoring])

    def sessions_of(self, token_id: str) -> int:
        """How many are open with that token."""
        return sum(session.is_open and session.token_id == token_id for session in self.sessions.values())

    async def reserve(self, session_id: str, seconds: float, scoring: bool = False) -> WorkerLink:
        """A worker for that session, which counts as one of its sessions from now on; waits in turn.

        Args:
            session_id: Of the session.
            seconds: How long to wait at most.
            scoring: Whether it is to be one of those that are for scoring.

        Raises:
            Busy: The queue is full, or no worker became free within ``seconds``.
        """
        turn: asyncio.Future[WorkerLink] = asyncio.get_running_loop().create_future()
        self._waiting[scoring].append((session_id, turn))
        self.dispatch()
        if not turn.done() and self._queued(scoring) > self._longest_queue:
            self._waiting[scoring].pop()
            raise Busy(f"{self._longest_queue} sessions are waiting for a worker already")
        if turn.done():
            return turn.result()
        try:
            # Not `asyncio.wait_for`: before Python 3.12 it swallows a cancellation that comes together with the turn.
            async with asyncio.timeout(seconds):
                return await asyncio.shield(turn)
        except TimeoutError:
            if not turn.cancel():  # it came in the last moment
                return turn.result()
            raise Busy(f"no worker became free within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            if not turn.cancel():
                self.release(turn.result(), session_id)
            raise

    def release(self, link: WorkerLink, session_id: str) -> None:
        """The session that was reserved for was not opened: the worker is as it was."""
        link.sessions.discard(session_id)
        self.dispatch()

    def dispatch(self) -> None:
        """Give free workers to those who wait, the least loaded worker first."""
        for scoring, waiting in self._waiting.items():
            links = [link for link in self.links if link.scoring == scoring]
            _dispatch(waiting, links)

    def states(self, scoring: bool = False) -> dict[str, int]:
        """How many workers for agents, or for scoring, are in each state."""
        counted = dict.fromkeys(("ready", "busy", "cleaning", "down"), 0)
        for link in self.links:
            if link.scoring == scoring:
                counted[link.state] += 1
        return counted


def _dispatch(waiting: deque[tuple[str, "asyncio.Future[WorkerLink]"]], links: list[WorkerLink]) -> None:
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
