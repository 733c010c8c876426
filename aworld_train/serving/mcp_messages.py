"""MCP's messages, as environments, gateways and clients write them: JSON-RPC 2.0 over streamable HTTP.

In the answer to ``initialize``, under MCP's ``experimental`` capabilities, an environment tells its clients how long a
tool call may take, after which its worker answers with an error.
"""

import json
from collections.abc import Mapping
from typing import Any

PROTOCOL = "2025-06-18"
SESSION_HEADER = "Mcp-Session-Id"
EVENTS = "text/event-stream"
HELLO: Mapping[str, Any] = {
    "protocolVersion": PROTOCOL,
    "capabilities": {},
    "clientInfo": {"name": "aworld-train", "version": "1"},
}
"""The parameters of ``initialize``, by a client that offers no capabilities."""

# From the JSON-RPC 2.0 specification; the last is of the range that it leaves to servers.
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
SERVER_ERROR = -32000

_LIMITS = ("experimental", "aworld-train", "tool_timeouts")


def error(kind: str, message: str, code: int = SERVER_ERROR) -> dict[str, Any]:
    """An error that programs recognise by ``data.type``."""
    return {"code": code, "message": message, "data": {"type": kind}}


def refusal(reason: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": reason}}


def reply_to_server(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply of a client to a server's own request: without capabilities, only a ping may be sent to it."""
    if request["method"] == "ping":
        return {"id": request["id"], "result": {}}
    unknown = {"code": METHOD_NOT_FOUND, "message": f"{request['method']} is not offered"}
    return {"id": request["id"], "error": unknown}


def event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


def json_event(message: Mapping[str, Any]) -> bytes:
    return event(json.dumps(message).encode())


def member(value: object, *names: str) -> object:
    """What nested objects have under these names; None where one of them is missing or not an object."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def experiments(limits: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """``capabilities.experimental`` of an environment with these limits, in seconds by tool server."""
    return {_LIMITS[1]: {_LIMITS[2]: dict(limits)}}


def read_limits(capabilities: object) -> dict[str, float]:
    """The limits in the capabilities of a server; empty where it is not an environment of this program."""
    limits = member(capabilities, *_LIMITS)
    if not isinstance(limits, Mapping):
        return {}
    return {
        str(server): float(seconds)
        for server, seconds in limits.items()
        if isinstance(seconds, int | float) and seconds > 0
    }
