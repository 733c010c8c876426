"""The JSON-RPC messages that the tool gateway itself writes."""

import json
from collections.abc import Mapping
from typing import Any

# From the JSON-RPC 2.0 specification.
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
_SERVER_ERROR = -32000  # of the range that it leaves to servers

Message = Mapping[str, Any]


def answer(request: Message, outcome: Mapping[str, Any]) -> bytes:
    """The response to a request; ``outcome`` is ``{"result": ...}`` or ``{"error": ...}``."""
    return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **outcome}).encode()


def failure(kind: str, text: str, code: int = _SERVER_ERROR) -> dict[str, Any]:
    """An error that programs recognise by ``data.type``."""
    return {"error": {"code": code, "message": text, "data": {"type": kind}}}


def tool_failure(text: str, kind: str) -> dict[str, Any]:
    """The result of a tool call that failed, to which the agent can react."""
    return {
        "result": {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {"aworld-train/type": kind},
        }
    }
