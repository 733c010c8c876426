"""A conversation as it is read, message by message: a tool's result gets the name of the tool that was called."""

from collections.abc import Sequence

from aworld_train.rollout.messages import Message, RequestRefused, ToolCall


class History:
    """The messages so far; those it begins with have been read before."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = list(messages)

    def add(self, message: Message) -> None:
        """Put a message at the end."""
        self.messages.append(message)

    def add_call(self, call: ToolCall) -> None:
        """Put a call into the last message, which is an assistant's."""
        last = self.messages.pop()
        self.add(
            Message("assistant", last.content, (*last.tool_calls, call), reasoning=last.reasoning),
        )

    def add_result(self, call_id: str, text: str, name: str = "") -> None:
        """Put a tool's result at the end; ``name`` is needed only where there is no identifier."""
        self.add(Message("tool", text, call_id=call_id, name=name or self._called(call_id)))

    def _called(self, call_id: str) -> str:
        """The tool that was called last with this identifier."""
        for message in reversed(self.messages):
            for call in reversed(message.tool_calls):
                if call_id and call.call_id == call_id:
                    return call.name
        return ""

    def complete(self, parameter: str) -> tuple[Message, ...]:
        """All of them.

        Raises:
            Refused: there are none; ``parameter`` is where they should be.
        """
        if not self.messages:
            raise RequestRefused(
                f"{parameter} must hold a message", code="invalid_value", parameter=parameter
            )
        return tuple(self.messages)
