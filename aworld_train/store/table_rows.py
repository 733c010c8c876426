"""The rows of the tables that events become."""

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy.schema import Table

from aworld_train.episode.figures import COLUMNS
from aworld_train.store import tables
from aworld_train.store.compression import compressed
from aworld_train.store.content import EpisodeContent, encoded
from aworld_train.store.events import EpisodeEnded

Rows = dict[Table, list[dict[str, Any]]]
_MAX_SEARCHED_CHARS = 8_000
_MAX_NAME_CHARS = 200


def end_values(event: EpisodeEnded) -> dict[str, Any]:
    figures = event.figures
    weights = figures.weights or (None, None)
    return {name: getattr(figures, name) for name in COLUMNS} | {
        "episode": event.id,
        "scorer": None if figures.scorer is None else _name(figures.scorer),
        "status": "ended",
        "ended": event.ended,
        "task_index": figures.index,
        "accuracy": figures.accuracy,
        "weights_first": weights[0],
        "weights_last": weights[1],
        "suspicions": _listed(figures.suspicions or ()),
        "finish_reasons": _listed(sorted(_finish_reasons(event.content))),
        "figures": figures.line(),
        "has_content": event.content is not None,
    }


def add_content_rows(rows: Rows, episode: str, content: EpisodeContent) -> None:
    rows[tables.contents].append({"episode": episode, "data": compressed(encoded(content))})
    rows[tables.texts].append({"episode": episode, "text": searched_text(content)})
    for number, use in enumerate(content.tool_calls):
        rows[tables.tool_calls].append(
            {
                "episode": episode,
                "number": number,
                "name": _name(use.name),
                "server": use.server,
                "began": use.began,
                "seconds": use.seconds,
                "is_error": use.is_error,
                "replayed": use.replayed,
            }
        )
    for number, row in enumerate(content.rows):
        spans = list(content.spans(number))
        rows[tables.rows].append(
            {
                "episode": episode,
                "number": number,
                "agent": _name(content.agents[row.agent].name),
                "tokens": spans[-1].end,
                "sampled_tokens": sum(span.end - span.begin for span in spans if span.own),
            }
        )


def _listed(names: Sequence[str]) -> str | None:
    return f",{','.join(names)}," if names else None


def _finish_reasons(content: EpisodeContent | None) -> set[str]:
    return {call.finish_reason for agent in content.agents for call in agent.calls} if content else set()


def searched_text(content: EpisodeContent) -> str:
    """The text that searches read: the answer, and what the model and the tools wrote, in lower case."""
    texts = [content.answer]
    for agent in content.agents:
        for node in agent.nodes:
            for message in node.messages:
                if node.sampled:
                    texts += [message.reasoning, message.content]
    texts += [text for use in content.tool_calls for text in (use.name, use.arguments, use.result)]
    return "\n".join(text for text in texts if text)[:_MAX_SEARCHED_CHARS].lower()


def _name(name: str) -> str:
    """A name as indexes hold it: PostgreSQL's rows of an index have 2,704 bytes at most, and models make names up."""
    if len(name) <= _MAX_NAME_CHARS:
        return name
    return f"{name[:_MAX_NAME_CHARS]}… {hashlib.sha256(name.encode()).hexdigest()[:16]}"
