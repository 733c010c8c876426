"""What became of a session, for the client that lost it, from a place that the session's tools cannot reach.

A client takes a loss for a fault of the environment only if this shows one: an error may come from the session's tools.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from aworld_train.serving.env_gateway.pool import Pool, WorkerSession
from aworld_train.serving.env_gateway.worker_client import WorkerClient

PATH = "/session"
WORKER_LOST = "worker_lost"
_MAX_REMEMBERED = 4096
_SAME_TIME_SECONDS = 5.0


@dataclass(frozen=True)
class _Ending:
    token_id: str
    cause: str
    worker: int
    moment: float


class Endings:
    def __init__(self, name: str, pool: Pool):
        self._name, self._pool = name, pool
        self._started = time.monotonic()
        self._endings: dict[str, _Ending] = {}
        self._idle_losses: deque[float] = deque(maxlen=64)

    def add(self, session: WorkerSession, cause: str) -> None:
        while len(self._endings) >= _MAX_REMEMBERED:
            del self._endings[next(iter(self._endings))]
        ending = _Ending(session.token_id, cause, session.link.number, time.monotonic())
        self._endings[session.session_id] = ending

    def add_loss(self, link: WorkerClient) -> None:
        if link.was_idle:
            self._idle_losses.append(time.monotonic())

    def description(self, session_id: str, token_id: str) -> dict[str, Any]:
        """``session`` is ``open``, ``unknown`` or why it ended; ``others``: whether idle workers were lost with it."""
        now = time.monotonic()
        description: dict[str, Any] = {"gateway": self._name, "uptime": now - self._started}
        session = self._pool.sessions.get(session_id)
        if session is not None and session.token_id == token_id:
            session.vanished = None  # its client is there
            if not session.broken:
                return description | {"session": "open"}
            ending = _Ending(token_id, WORKER_LOST, session.link.number, session.last_active)
        else:
            remembered = self._endings.get(session_id)
            if remembered is None or remembered.token_id != token_id:
                return description | {"session": "unknown"}
            ending = remembered
        others = any(abs(moment - ending.moment) < _SAME_TIME_SECONDS for moment in self._idle_losses)
        return description | {"session": ending.cause, "worker": ending.worker, "others": others}
