"""The cassette: finds the recorded answer to a call, and adds answers to the file.

Equal calls of one episode are numbered: the second gets the answer of a second, or the last that was recorded.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from aworld_train.errors import CassetteError, UsageError
from aworld_train.rollout.cassette.key import CallKey, canonical
from aworld_train.rollout.cassette.storage import CassetteFile, LineLocation, encode

Answer = Mapping[str, Any]
"""A server's answer to a call in JSON-RPC's form: ``{"result": ...}`` or ``{"error": ...}``."""

_MAX_SHOWN_CHARS = 300  # characters of arguments in a message
_MAX_COMPARED_CALLS = 50  # the latest calls of a tool, among which the nearest is searched
_MAX_COMPARED_CHARS = 100  # the part of their arguments that is compared


class Mode(Enum):
    """With ``replay_or_record``, a call is answered from the file if it was recorded, else made and recorded."""

    record = "record"
    replay = "replay"
    replay_or_record = "replay_or_record"


class Cassette:
    """Recorded calls of any number of servers and episodes.

    ``ignore`` are, by tool, the arguments that do not identify its calls; they are not recorded either.
    """

    def __init__(self, path: str | Path, mode: Mode, ignore: Mapping[str, Collection[str]] | None = None):
        self.path = Path(path)
        self.mode = mode
        self._ignore = {tool: frozenset(names) for tool, names in (ignore or {}).items()}
        self._file = CassetteFile(self.path, writable=mode is not Mode.replay)
        self._calls: dict[bytes, dict[int, LineLocation]] = {}
        self._by_tool: dict[tuple[str, str], dict[bytes, LineLocation]] = {}
        self._tools: dict[str, LineLocation] = {}
        self._catch_up()

    @property
    def records(self) -> bool:
        return self.mode is not Mode.replay

    @property
    def replays(self) -> bool:
        return self.mode is not Mode.record

    def key(self, server: str, tool: str, arguments: Mapping[str, Any] | None, nth: int = 1) -> CallKey:
        """The key of a call; ``ValueError`` if the arguments cannot be written as JSON."""
        return CallKey(server, tool, canonical(arguments, self._ignore.get(tool, ())), nth)

    def find(self, call: CallKey) -> Answer | None:
        location = self._locate(call)
        return None if location is None else _answer(self._file.record_at(location))

    def keep(self, call: CallKey, answer: Answer) -> None:
        """Record an answer, unless the file holds the same one already."""
        record = {
            "server": call.server,
            "tool": call.tool,
            "arguments": json.loads(call.arguments),
            "nth": call.nth,
            **_answer(answer),
        }
        self._catch_up()
        recorded = self._calls.get(call.digest(), {}).get(call.nth)
        if recorded is None or self._file.bytes_at(recorded) != encode(record):
            self._file.append(record)

    def tools(self, server: str) -> list[dict[str, Any]]:
        """The recorded MCP tool list of a server: ``name``, ``description``, ``inputSchema`` and all other fields."""
        if not self.has_tools(server):
            recorded = (
                f"only those of {', '.join(sorted(self._tools))}"
                if self._tools
                else "nor of any other server"
            )
            raise CassetteError(
                f"The cassette {self.path} has no tool list of the server {server!r}, {recorded}. Record it with "
                "env.cassette.mode=record and the same env.servers."
            )
        tools: list[dict[str, Any]] = self._file.record_at(self._tools[server])["tools"]
        return tools

    def has_tools(self, server: str) -> bool:
        if server not in self._tools:
            self._catch_up()
        return server in self._tools

    def keep_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> None:
        record = {"server": server, "tools": list(tools)}
        self._catch_up()
        if server not in self._tools or self._file.bytes_at(self._tools[server]) != encode(record):
            self._file.append(record)

    def miss(self, call: CallKey) -> str:
        """The error for a call that was not recorded: the call, the file, and the nearest recorded call."""
        message = f"Error: the cassette {self.path} has no call of {call.tool} with {_shown(call.arguments)}"
        recorded = self._by_tool.get((call.server, call.tool), {})
        if not recorded:
            return f"{message}; it has no call of this tool at all"
        latest = list(recorded.values())[-_MAX_COMPARED_CALLS:]
        others = [canonical(self._file.record_at(location)["arguments"]) for location in latest]
        nearest = max(others, key=lambda other: _likeness(other, call.arguments))
        return f"{message}; the nearest recorded call of this tool has {_shown(nearest)}"

    def _locate(self, call: CallKey) -> LineLocation | None:
        digest = call.digest()
        if call.nth not in self._calls.get(digest, {}):
            self._catch_up()
        recorded = self._calls.get(digest)
        if not recorded:
            return None
        up_to_this = [nth for nth in recorded if nth <= call.nth]
        return recorded[max(up_to_this) if up_to_this else min(recorded)]

    def _catch_up(self) -> None:
        """Read the lines that this and other processes have added since."""
        for location, record in self._file.read_new():
            if "tools" in record:
                self._tools[record["server"]] = location
                continue
            try:
                call = self.key(record["server"], record["tool"], record["arguments"], record["nth"])
            except (ValueError, AttributeError, TypeError) as error:
                raise CassetteError(
                    f"The cassette {self.path} cannot be read: at byte {location.offset} is not a call ({error}). "
                    "Mend or remove that line, or record a new cassette."
                ) from error
            digest = call.digest()
            self._calls.setdefault(digest, {})[call.nth] = location
            self._by_tool.setdefault((call.server, call.tool), {})[digest] = location


class NoTools(Cassette):
    """In place of a cassette, for an agent without tools: an empty list of tools, and no answer to any call."""

    def __init__(self) -> None:
        self.mode = Mode.replay
        self._ignore = {}

    def find(self, call: CallKey) -> Answer | None:
        return None

    def tools(self, server: str) -> list[dict[str, Any]]:
        return []

    def has_tools(self, server: str) -> bool:
        return True

    def miss(self, call: CallKey) -> str:
        return f"Error: there is no tool {call.tool}; there are no tools"


class CassetteReplay:
    """An episode's view of a cassette: the calls to ``server`` (a ``server_identity``), counted from one."""

    def __init__(self, cassette: Cassette, server: str):
        self.cassette = cassette
        self.server = server
        self._counts: Counter[bytes] = Counter()

    def next(self, tool: str, arguments: Mapping[str, Any] | None) -> CallKey:
        """The key of the episode's next call; raises as ``Cassette.key``."""
        call = self.cassette.key(self.server, tool, arguments)
        digest = call.digest()
        self._counts[digest] += 1
        return CallKey(call.server, call.tool, call.arguments, self._counts[digest])


def open_cassette(
    path: str | Path | None, mode: str | Mode, rules: Mapping[str, Any] | None = None
) -> Cassette | None:
    """The cassette that a recipe's ``env.cassette`` names, one for all episodes of a process; None for mode ``off``."""
    name = mode.value if isinstance(mode, Mode) else mode
    if name == "off":
        return None
    if path is None:
        raise UsageError(f"env.cassette.mode is {name}, but env.cassette.path is not set.")
    ignore = {tool: sorted(rule["ignore"]) for tool, rule in (rules or {}).items()}
    return _opened(Path(path).absolute(), Mode(name), json.dumps(ignore, sort_keys=True))


@lru_cache(maxsize=8)
def _opened(path: Path, mode: Mode, ignore: str) -> Cassette:
    return Cassette(path, mode, json.loads(ignore))


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    kind = "error" if "error" in record else "result"
    return {kind: record[kind]}


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:_MAX_COMPARED_CHARS], other[:_MAX_COMPARED_CHARS]).ratio()


def _shown(arguments: str) -> str:
    return arguments if len(arguments) <= _MAX_SHOWN_CHARS else f"{arguments[:_MAX_SHOWN_CHARS]}..."
