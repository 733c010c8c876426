"""Tool calls: what a model wrote, and what was called."""

from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call that a model wrote; ``arguments`` is JSON text that may be anything."""

    name: str
    arguments: str
    call_id: str = ""

    def for_chat(self, arguments: Any = None) -> dict[str, Any]:
        """The call in the form of the OpenAI chat API, with other arguments where they are given."""
        function = {"name": self.name, "arguments": self.arguments if arguments is None else arguments}
        return {"id": self.call_id, "type": "function", "function": function}


class ToolCallRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call that was made, with its result before it was shortened for the model; ``began`` is Unix time.

    ``call_id`` is empty where an outside agent made it. ``server`` is as ``rollout.cassette.server_identity`` names it,
    and empty until it is stored.
    """

    name: str
    arguments: str
    result: str
    is_error: bool
    began: float
    seconds: float
    replayed: bool = False
    call_id: str = ""
    server: str = ""
