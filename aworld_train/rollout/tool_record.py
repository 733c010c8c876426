"""What is recorded of a tool call: what was sent, what came back, and how long it took."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aworld_train.episode.tool_calls import ToolCallRecord
from aworld_train.rollout.tools import text_of

UNANSWERED = "[no answer: the call was given up, or the environment was lost]"


@dataclass
class ToolCounts:
    """The tool calls of an episode, and their total ``seconds``; ``missed`` are errors of a cassette."""

    calls: int = 0
    errors: int = 0
    seconds: float = 0.0
    records: list[ToolCallRecord] = field(default_factory=list)
    replayed: int = 0
    missed: int = 0

    @property
    def was_calling(self) -> bool:
        """Whether a call was under way when the episode ended."""
        return bool(self.records) and self.records[-1].result == UNANSWERED


def outcome_text(outcome: Mapping[str, Any] | None) -> str:
    """The text of a JSON-RPC answer to a call; its JSON where it has another form than tool results have."""
    if outcome is None:
        return UNANSWERED
    error, result = outcome.get("error"), outcome.get("result")
    if isinstance(error, Mapping):
        return f"Error: {error.get('message')}"
    try:
        return text_of(result) if isinstance(result, Mapping) else json.dumps(result, ensure_ascii=False)
    except (KeyError, TypeError, AttributeError):
        return json.dumps(result, ensure_ascii=False, default=str)
