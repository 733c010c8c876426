"""Who is to blame when a tool session gives no result: the environment, or what the session itself did.

Whatever comes as an answer may be forged by the session's own tools. So the environment is blamed only if a place that
they cannot reach shows its fault: the gateway does not answer or was started anew, it ended the session itself, it lost
idle workers at the same time, or the container engine saw that the worker was killed from outside.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from aworld_train.env.images import LABEL
from aworld_train.network import proxy_for
from aworld_train.rollout.http_client import SessionPerLoop
from aworld_train.rollout.outcome import EnvironmentLost, ToolsBroken
from aworld_train.serving.mcp_messages import SESSION_HEADER

_HTTP = SessionPerLoop(keepalive_seconds=5.0)
_ASK_SECONDS = 15.0
_SECOND_LOOK_SECONDS = 2.0  # in which a fault that hits more than this session shows
_ENDED_BY_GATEWAY = ("expired", "idle", "revoked", "stopped")

_ENGINE_SECONDS = 15
_NOTICE_SECONDS = 5.0
"""Within which an engine on a busy machine has noticed that a container is over."""
_SIGKILL_CODE = "137"
_BY_REQUEST = {"kill", "stop", "destroy"}


@dataclass(frozen=True)
class LostSession:
    """A session that gave no result; ``opened`` is on the monotonic clock, ``reason`` what the client saw."""

    url: str
    headers: Mapping[str, str]
    session_id: str | None
    opened: float
    status: int | None
    reason: str

    @property
    def age(self) -> float:
        return time.monotonic() - self.opened


async def failure_of(session: LostSession) -> EnvironmentLost | None:
    """The failure that ends the episode; None if the session is still there, so that only the result is missing."""
    word: Mapping[str, Any] = {}
    for last in (False, True):
        answer = await _gateway_word(session)
        if answer is None or _shows_fault(answer, session) or await _engine_saw_fault(answer, session):
            return EnvironmentLost(f"{session.url}: {session.reason}")
        word = answer
        # A worker that is being stopped may answer before the gateway knows.
        if last or word.get("session") not in ("open", "worker_lost"):
            break
        await asyncio.sleep(_SECOND_LOOK_SECONDS)
    if word.get("session") == "open" or ("gateway" not in word and session.status != HTTPStatus.NOT_FOUND):
        return None
    return ToolsBroken(f"{session.url}: {session.reason}")


def _shows_fault(word: Mapping[str, Any], session: LostSession) -> bool:
    """Whether the gateway is another one than that of the session, has ended it, or lost idle workers with it."""
    return (
        session.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        or (word.get("session") == "unknown" and word["uptime"] < session.age)
        or word.get("session") in _ENDED_BY_GATEWAY
        or word.get("others", False)
    )


async def _engine_saw_fault(word: Mapping[str, Any], session: LostSession) -> bool:
    port = urlsplit(session.url).port
    if port is None or word.get("session") != "worker_lost":
        return False
    return await asyncio.to_thread(killed_from_outside, word["gateway"], port, word["worker"], session.age)


async def _gateway_word(session: LostSession) -> Mapping[str, Any] | None:
    """What the gateway says of the session; empty from a server without our gateway, None without an answer."""
    url = urljoin(session.url, "/session")
    headers = {**session.headers, SESSION_HEADER: session.session_id or ""}
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            http = await _HTTP.get()
            async with http.get(
                url, headers=headers, proxy=proxy_for(url), allow_redirects=False
            ) as response:
                body = await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
    try:
        word = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return word if isinstance(word, dict) and "gateway" in word else {}


def killed_from_outside(environment: str, port: int, worker: int, seconds: float) -> bool:
    """Whether an engine of this machine saw a worker killed in these seconds, and not for want of memory.

    Tools cannot signal their worker, and what it does itself ends it with another exit code. ``port`` is the gateway's.
    """
    try:
        import docker

        client = docker.from_env(timeout=_ENGINE_SECONDS)
        label = f"{LABEL}.environment={environment}"
        if not client.networks.list(filters={"label": [label, f"{LABEL}.port={port}"]}):
            return False
        filters = {"type": "container", "label": [label, f"{LABEL}.number={worker}"]}
        since = f"{time.time() - seconds:.3f}"

        def seen_until(end: float) -> Iterator[tuple[str, str | None]]:
            for event in client.events(since=since, until=f"{end:.3f}", filters=filters, decode=True):
                yield event["Action"], event["Actor"]["Attributes"].get("exitCode")

        for action, _ in seen_until(time.time() + _NOTICE_SECONDS):
            if action == "die":
                break
        seen = list(seen_until(time.time()))
    except Exception:  # no engine here, or one that does not answer, has no word in this
        return False
    actions = {action for action, _ in seen}
    was_killed = bool(actions & _BY_REQUEST) or ("die", _SIGKILL_CODE) in seen
    return was_killed and "oom" not in actions
