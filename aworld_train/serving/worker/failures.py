"""Failures between a client and a tool, as JSON-RPC errors with a ``type`` on which programs can act."""

from typing import Any

from aworld_train.serving.mcp_messages import SERVER_ERROR, error


class CallFailure(Exception):
    """A request that has no result; ``message`` is one line for people and models.

    ``kind``: ``tool_crashed``, ``tool_timeout``, ``tool_output_too_large``, ``tool_unavailable``, ``unknown_tool``,
    ``unknown_server``, ``unsupported`` or ``worker_lost``.
    """

    def __init__(self, kind: str, message: str, code: int = SERVER_ERROR):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code

    def to_json(self) -> dict[str, Any]:
        return error(self.kind, self.message, self.code)


class RemoteError(Exception):
    def __init__(self, error: dict[str, Any]):
        super().__init__(str(error.get("message")))
        self.error = error
