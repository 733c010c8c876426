"""Which rollout a request is for: the path of its base URL says it, or, at the common URL, the API key.

    /rollouts/<key>/v1/chat/completions                   the rollout's own agent
    /rollouts/<key>/agents/<agent>/v1/chat/completions    another one
    /v1/chat/completions, Authorization: Bearer <key>     the same, by key
    /v1/chat/completions, Authorization: Bearer <key>.<agent>

The path wins: agents with any made-up API key work with the address alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

DEFAULT_AGENT = "agent"
# "." and ".." are steps in a path and "" is not a segment: these names, and names that begin with the mark, get a mark.
_MARK = "~"


@dataclass(frozen=True)
class Target:
    """The destination of a request: of pairs of a key and an agent's name, the first with a known key counts."""

    callers: tuple[tuple[str, str], ...]
    endpoint: str


def path(key: str, agent: str | None) -> str:
    """The path of a rollout, or of one agent in it, up to and without ``/v1``."""
    return f"/rollouts/{key}" + (f"/agents/{_segment(agent)}" if agent is not None else "")


def api_key(key: str, agent: str | None) -> str:
    return key if agent is None else f"{key}.{_segment(agent)}"


def read(raw_path: str, headers: Mapping[str, str]) -> Target:
    in_path = _from_path(raw_path)
    return in_path if in_path.callers else Target(tuple(_from_headers(headers)), in_path.endpoint)


@lru_cache(maxsize=4096)
def _from_path(raw_path: str) -> Target:
    steps = [step for step in raw_path.split("/") if step]
    callers: tuple[tuple[str, str], ...] = ()
    if steps[:1] == ["rollouts"] and len(steps) > 1:
        key, steps = steps[1], steps[2:]
        agent = DEFAULT_AGENT
        if steps[:1] == ["agents"] and len(steps) > 1:
            agent, steps = _agent(steps[1]), steps[2:]
        callers = ((key, agent),)
    return Target(callers, "/".join(steps[1:]) if steps[:1] == ["v1"] else "")


def _from_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    for credential in (token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")):
        key, dot, agent = credential.partition(".")
        if key:
            yield key, _agent(agent) if dot else DEFAULT_AGENT


def _segment(agent: str) -> str:
    marked = agent in ("", ".", "..") or agent.startswith(_MARK)
    return quote(_MARK + agent if marked else agent, safe="")


def _agent(segment: str) -> str:
    return unquote(segment).removeprefix(_MARK)
