"""In place of a cassette, for an agent without tools: it has an empty list of tools and answers no call."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_train.rollout.cassette.cassette import Answer, Cassette, Mode
from aworld_train.rollout.cassette.key import CallKey, canonical


class NoTools(Cassette):
    """A cassette without a file and without tools."""

    def __init__(self) -> None:
        self.path = Path()
        self.mode = Mode.replay

    def key(self, server: str, tool: str, arguments: Mapping[str, Any] | None, nth: int = 1) -> CallKey:
        return CallKey(server, tool, canonical(arguments), nth)

    def find(self, call: CallKey) -> Answer | None:
        return None

    def tools(self, server: str) -> list[dict[str, Any]]:
        return []

    def has_tools(self, server: str) -> bool:
        return True

    def miss(self, call: CallKey) -> str:
        return f"Error: there is no tool {call.tool}; there are no tools"
