"""Which session has which worker, and who waits for one: first come, first served, in a queue with an end."""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field

from aworld_train.serving.gateway.link import WorkerLink


class Busy(Exception):
    """No worker for a new session; the text says why."""


@dataclass(eq=False)
class Session:
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
        self.sessions: dict[str, Session] = {}
        self._longest_queue = longest_queue
        self._waiting: deque[tuple[str, asyncio.Future[WorkerLink]]] = deque()

    @property
    def queued(self) -> int:
        return sum(not turn.done() for _, turn in self._waiting)

    def sessions_of(self, token_id: str) -> int:
        """How many are open with that token."""
        return sum(session.is_open and session.token_id == token_id for session in self.sessions.values())

    async def reserve(self, session_id: str, seconds: float) -> WorkerLink:
        """A worker for that session, which counts as one of its sessions from now on; waits in turn.

        Raises:
            Busy: The queue is full, or no worker became free within ``seconds``.
        """
        turn: asyncio.Future[WorkerLink] = asyncio.get_running_loop().create_future()
        self._waiting.append((session_id, turn))
        self.dispatch()
        if not turn.done() and self.queued > self._longest_queue:
            self._waiting.pop()
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
        while self._waiting:
            session_id, turn = self._waiting[0]
            free = [] if turn.done() else [link for link in self.links if link.free]
            if not turn.done() and not free:
                return
            self._waiting.popleft()
            if free:
                link = min(free, key=lambda one: len(one.sessions))
                link.sessions.add(session_id)
                turn.set_result(link)

    def states(self) -> dict[str, int]:
        """How many workers are in each state."""
        counted = dict.fromkeys(("ready", "busy", "cleaning", "down"), 0)
        for link in self.links:
            counted[link.state] += 1
        return counted
