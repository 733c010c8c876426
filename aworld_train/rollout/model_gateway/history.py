"""Builds a conversation message by message: a tool's result gets the name of the tool that was called."""

from collections.abc import Sequence

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.contents import Content


class History:
    """The messages so far; it may begin with messages that were parsed before."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = list(messages)

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def add_call(self, call: ToolCall) -> None:
        """Add a call to the last message, which is an assistant's."""
        last = self.messages.pop()
        self.add(Message("assistant", last.content, (*last.tool_calls, call), reasoning=last.reasoning))

    def add_result(self, call_id: str, content: Content, name: str = "") -> None:
        """Add a tool's result; ``name`` is needed only without an identifier."""
        name = name or self._called(call_id)
        self.add(Message("tool", content.text, call_id=call_id, name=name, images=content.images))

    def _called(self, call_id: str) -> str:
        for message in reversed(self.messages):
            for call in reversed(message.tool_calls):
                if call_id and call.call_id == call_id:
                    return call.name
        return ""

    def complete(self, parameter: str) -> tuple[Message, ...]:
        if not self.messages:
            raise fields.invalid(parameter, "must hold a message")
        return tuple(self.messages)
