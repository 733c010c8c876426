"""How an environment tells its clients how long a tool call may take, after which its worker answers with an error: in
the answer to ``initialize``, under MCP's ``experimental`` capabilities.
"""

from collections.abc import Mapping
from typing import Any

_EXPERIMENT, _FIELD = "aworld-train", "tool_timeouts"


def experiments(limits: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """``capabilities.experimental`` of an environment with these limits, in seconds by tool server."""
    return {_EXPERIMENT: {_FIELD: dict(limits)}}


def read_limits(capabilities: object) -> dict[str, float]:
    """The limits in the capabilities of a server; empty where it is not an environment of this program."""
    limits = capabilities
    for name in ("experimental", _EXPERIMENT, _FIELD):
        limits = limits.get(name) if isinstance(limits, Mapping) else None
    if not isinstance(limits, Mapping):
        return {}
    return {
        str(server): float(seconds)
        for server, seconds in limits.items()
        if isinstance(seconds, int | float) and seconds > 0
    }
