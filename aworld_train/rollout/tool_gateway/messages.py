"""The JSON-RPC messages that the gateway itself writes."""

import json
from collections.abc import Mapping
from typing import Any

# From the JSON-RPC 2.0 specification.
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
_SERVER_ERROR = -32000  # of the range that it leaves to servers

Message = Mapping[str, Any]


def answer(request: Message, said: Mapping[str, Any]) -> bytes:
    """``said`` (``{"result": ...}`` or ``{"error": ...}``) in answer to a request."""
    return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **said}).encode()


def failure(kind: str, text: str, code: int = _SERVER_ERROR) -> dict[str, Any]:
    """An error that programs can tell by ``data.type``."""
    return {"error": {"code": code, "message": text, "data": {"type": kind}}}


def tool_failure(text: str, kind: str) -> dict[str, Any]:
    """The result of a tool that did not work: something that an agent can react to."""
    return {
        "result": {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {"aworld-train/type": kind},
        }
    }
