"""Failures between a client and a tool, as JSON-RPC errors with a ``type`` on which programs can act."""

from typing import Any

# From the JSON-RPC 2.0 specification.
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
# In the range that the specification leaves to servers.
_SERVER_ERROR = -32000


class CallFailure(Exception):
    """A request that has no result; ``message`` is one line for people and models.

    ``kind``: ``tool_crashed``, ``tool_timeout``, ``tool_output_too_large``, ``tool_unavailable``, ``unknown_tool``,
    ``unknown_server``, ``unsupported`` or ``worker_lost``.
    """

    def __init__(self, kind: str, message: str, code: int = _SERVER_ERROR):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "data": {"type": self.kind}}


class RemoteError(Exception):
    def __init__(self, error: dict[str, Any]):
        super().__init__(str(error.get("message")))
        self.error = error
