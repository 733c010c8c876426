"""Episodes as plain data: the rows of a list, filtered by an address, one with its conversations, and its tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from aworld_train.episode.figures import COLUMNS, shown_figures
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.errors import UsageError
from aworld_train.store.conditions import where
from aworld_train.store.content import EpisodeContent, StoredAgent, StoredNode
from aworld_train.store.reading import MAX_SEARCHED, SORTS, EpisodeHead, RowUse, Store, StoredEpisode
from aworld_train.view.plain import shortened

PAGE_SIZE = 100
_MAX_PAGE = 500
_MAX_OFFSET = 10**9
_EQUAL = ("phase", "outcome", "treatment", "status", "scorer", "tool", "suspicion", "task", "source")
_BOUNDS = {
    "step": "step=",
    "step_min": "step>=",
    "step_max": "step<=",
    "reward_min": "reward>=",
    "reward_max": "reward<=",
}
MAX_CHARS = 200_000
"""The longest text that is sent whole."""
MAX_QUESTION_CHARS = 300
"""The longest question in a list; of longer ones the beginning is sent."""
MAX_ATTEMPTS = 500


@dataclass(frozen=True)
class EpisodeFilter:
    """Which episodes are listed; ``superseded``: also those that a resumed run has played again.

    With ``since`` only those that began after it.
    """

    condition: str = ""
    search: str = ""
    superseded: bool = False
    sort: str = "began"
    descending: bool = True
    offset: int = 0
    limit: int = PAGE_SIZE
    since: float | None = None


def parse_filter(parameters: Mapping[str, str]) -> EpisodeFilter:
    tests = [f"{name}={quoted(value)}" for name in _EQUAL if (value := parameters.get(name))]
    tests += [
        f"{bound}{_number(name, value)}" for name, bound in _BOUNDS.items() if (value := parameters.get(name))
    ]
    if (condition := parameters.get("where", "")).strip():
        # Read alone first, so that a mistake is reported as it was typed and a parenthesis cannot end the others.
        where(condition)
        tests.append(f"({condition})")
    sort = parameters.get("sort") or "began"
    if sort not in SORTS:
        raise UsageError(f"Episodes cannot be sorted by {sort!r}; by {', '.join(SORTS)}.")
    return EpisodeFilter(
        " and ".join(tests),
        parameters.get("search", ""),
        parameters.get("superseded") == "1",
        sort,
        parameters.get("order", "down") != "up",
        _count("offset", parameters.get("offset"), 0, _MAX_OFFSET),
        _count("limit", parameters.get("limit"), PAGE_SIZE, _MAX_PAGE),
    )


def quoted(value: str) -> str:
    for mark in ('"', "'"):
        if mark not in value:
            return f"{mark}{value}{mark}"
    raise UsageError(f"A condition cannot compare with {value!r}, which has both kinds of quotation marks.")


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"`{name}` is {value!r}, which is not a number.") from None
    if number != number or abs(number) == float("inf"):
        raise UsageError(f"`{name}` is {value!r}, which is not a finite number.")
    return number


def _count(name: str, value: str | None, default: int, max_count: int) -> int:
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or len(value) > 12 or int(value) > max_count:
        raise UsageError(f"`{name}` is {value!r}; it must be a whole number from 0 to {max_count}.")
    return int(value)


def episode_list(store: Store, filters: EpisodeFilter) -> dict[str, Any]:
    return list_json(store.episodes(**vars(filters))) | {
        "searched": None if filters.since is None else MAX_SEARCHED
    }


def list_json(heads: Sequence[EpisodeHead]) -> dict[str, Any]:
    return {"episodes": [head_json(head) for head in heads], "figures": shown_figures()}


def head_json(head: EpisodeHead) -> dict[str, Any]:
    fields = head.to_json()
    for name in ("question", "correct_answer", "cause"):
        if fields.get(name):
            fields[name] = fields[name][:MAX_QUESTION_CHARS]
    return fields


def episode_json(episode: StoredEpisode, *, max_chars: int = MAX_CHARS) -> dict[str, Any]:
    """An episode with everything but its tokens."""
    content = episode.content
    head = episode.head.to_json() | {"question": shortened(episode.head.question, max_chars)}
    return {
        "head": head,
        "figures": shown_figures(),
        "line": {key: value for key, value in episode.figures.line().items() if key not in _IN_HEAD},
        "content": None if content is None else _content(content, max_chars),
        "rows": [
            {name: getattr(use, name) for name in ("trained_step", "position", "masked_in", "advantage")}
            for use in episode.rows
        ],
        "tools": dict(episode.tools),
    }


_IN_HEAD = (*COLUMNS, "episode", "step", "index", "validate", "weights", "suspicions", "scores", "extracted")
"""Figures that the head or the score has."""


def tokens_json(episode: StoredEpisode, texts: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Token ids and log-probabilities (null for context) of an episode by node, and how rows are made of them."""
    content = episode.content
    if content is None:
        return {"agents": [], "rows": [], "texts": None}
    agents = [
        [
            {
                "ids": node.token_ids,
                "logprobs": [round(value, 5) for value in node.token_logprobs] if node.sampled else None,
                "count": node.token_count,
            }
            for node in agent.nodes
        ]
        for agent in content.agents
    ]
    return {"agents": agents, "rows": _token_rows(content, episode.rows), "texts": texts}


def token_ids(episode: StoredEpisode) -> set[int]:
    agents = episode.content.agents if episode.content else ()
    return {token for agent in agents for node in agent.nodes for token in node.token_ids}


def _token_rows(content: EpisodeContent, uses: Sequence[RowUse]) -> list[dict[str, Any]]:
    rows = []
    for number, row in enumerate(content.rows):
        use = uses[number] if number < len(uses) else RowUse()
        trained = {"trained_step": use.trained_step, "advantage": use.advantage}
        rows.append(structs.asdict(row) | trained | {"advantages": list(use.advantages)})
    return rows


def _content(content: EpisodeContent, max_chars: int) -> dict[str, Any]:
    return {
        "agents": [_agent(agent, max_chars) for agent in content.agents],
        "tool_calls": [
            structs.asdict(use)
            | {"arguments": shortened(use.arguments, max_chars), "result": shortened(use.result, max_chars)}
            for use in content.tool_calls
        ],
        "rows": [structs.asdict(row) for row in content.rows],
        "score": None if content.score is None else _score(content.score, max_chars),
        "answer": shortened(content.answer, max_chars),
    }


def _score(score: ScoreResult, max_chars: int) -> dict[str, Any]:
    return structs.asdict(score) | {
        "extracted": None if score.extracted is None else shortened(score.extracted, max_chars),
        "steps": [shortened(step, max_chars) for step in score.steps],
    }


def _agent(agent: StoredAgent, max_chars: int) -> dict[str, Any]:
    return {
        "name": agent.name,
        "nodes": [_node(node, max_chars) for node in agent.nodes],
        "calls": [structs.asdict(call) for call in agent.calls],
        "branches": [structs.asdict(branch) for branch in agent.branches],
    }


def _node(node: StoredNode, max_chars: int) -> dict[str, Any]:
    return {
        "parent": node.parent,
        "messages": [_message(message, max_chars) for message in node.messages],
        "tokens": node.token_count,
        "sampled": node.sampled,
        "ended": node.ended,
        "stop": node.stop,
        "received": node.received,
        "versions": node.versions,
        "parts": node.parts,
        "redacted": node.redacted,
    }


def _message(message: Message, max_chars: int) -> dict[str, Any]:
    return structs.asdict(message) | {
        "content": shortened(message.content, max_chars),
        "reasoning": shortened(message.reasoning, max_chars),
        "tool_calls": [
            structs.asdict(call) | {"arguments": shortened(call.arguments, max_chars)}
            for call in message.tool_calls
        ],
        "images": [image.digest for image in message.images],
    }
