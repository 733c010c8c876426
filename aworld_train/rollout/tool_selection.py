"""Which of an environment's tools an agent sees, and how much of their descriptions: each costs tokens of every prompt.

The list is shortened, and calls of hidden tools are refused, where an agent's tools pass: so it holds for every agent
and every environment. Cassettes keep the whole list.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from aworld_train.errors import UsageError, suggestion

_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z0-9\"'`(\[*-])|\n\s*\n")
_VALUES = ("default", "enum", "const", "examples", "_meta")
"""Keys of a schema whose values are not schemas."""


@dataclass(frozen=True)
class ToolSelection:
    """Patterns of names, such as ``read_*``: without ``include`` all tools are seen but those of ``exclude``."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    short_descriptions: bool = False

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> "ToolSelection":
        return cls(tuple(section["include"]), tuple(section["exclude"]), section["short_descriptions"])

    @property
    def changes_nothing(self) -> bool:
        return self == ALL_TOOLS

    def shows(self, name: str) -> bool:
        is_included = not self.include or _matches(name, self.include)
        return is_included and not _matches(name, self.exclude)

    def apply(self, tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What the agent sees of tools, in the form of MCP or of functions."""
        shown = [dict(tool) for tool in tools if self.shows(_name(tool))]
        return [_shortened(tool) for tool in shown] if self.short_descriptions else shown

    def check(self, names: Sequence[str]) -> None:
        """Refuse patterns that match none of the environment's tools, and a selection of none."""
        for key, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    hint = suggestion(pattern, names, f" They are {', '.join(names)}.")
                    raise UsageError(
                        f"agent.tools.{key} names {pattern!r}, which none of the environment's tools matches.{hint}"
                    )
        if names and not any(map(self.shows, names)):
            raise UsageError(
                "agent.tools leaves the agent none of the environment's tools: exclude fewer, or set env.backend=none "
                "for an agent without tools."
            )


ALL_TOOLS = ToolSelection()


def unknown_tool(name: str) -> str:
    """What an agent gets for a call of a tool that it does not see: as from a server that lacks it."""
    return f"Error: Unknown tool: {name}"


def first_sentence(text: str) -> str:
    text = text.strip()
    end = _SENTENCE_END.search(text)
    return " ".join(text[: end.end()].split()) if end else text


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("function", tool).get("name"))


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: first_sentence(item)
        if key == "description" and isinstance(item, str)
        else item
        if key in _VALUES
        else _shortened(item)
        for key, item in value.items()
    }
