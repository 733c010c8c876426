"""Finished conversations as token rows, with the ids and the mask that they would have had as episodes.

The template puts messages together as it does for the model gateway: a turn's tokens stay as they are when more
messages follow it, and where it cannot continue a turn another row begins, in which earlier turns are context.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aworld_train.episode.message import Message, arguments_text
from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import chat
from aworld_train.rollout.template import CannotContinue, ChatTemplate, TemplateFailure

_SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}


class Conversation(NamedTuple):
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]


class Rendered(NamedTuple):
    """The ids of one row, and 1 for those that the model is to write."""

    ids: list[int]
    mask: list[int]


class UnusableConversation(Exception):
    """Why nothing can be trained on a conversation, as a part of a sentence."""


def read_conversation(data: Mapping[str, Any]) -> Conversation:
    """A conversation in OpenAI's form (``messages``, ``tools``) or in ShareGPT's (``conversations``)."""
    tools = data.get("tools") or []
    try:
        body = {
            "messages": _messages(data),
            "tools": json.loads(tools) if isinstance(tools, str) else tools,
        }
        request = chat.read(body).request
    except RequestRefused as refused:
        raise UnusableConversation(str(refused)) from refused
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableConversation("it has neither OpenAI's form nor ShareGPT's") from error
    return Conversation(request.messages, request.tools)


def conversation_rows(template: ChatTemplate, conversation: Conversation) -> Iterator[Rendered]:
    messages, tools = conversation
    turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if not turns or turns[0] == 0:
        raise UnusableConversation("the assistant says nothing in answer to a message")
    row, last = Rendered([], []), -1
    turn: list[int] = []
    for index in turns:
        history = messages[:index]
        try:
            if last < 0:
                raise CannotContinue("this is the first turn")
            new = messages[last + 1 : index]
            context = template.continuation(messages[: last + 1], new, tools, turn, True, _tools_key(tools))
        except CannotContinue:
            if row.ids:
                yield row
            row = Rendered([], [])
            context = _refused_as_unusable(template.initial, history, tools)
        turn = _refused_as_unusable(template.turn, history, messages[index], tools)
        row.ids.extend([*context, *turn])
        row.mask.extend([0] * len(context) + [1] * len(turn))
        last = index
    yield row


def _refused_as_unusable(render: Any, *arguments: Any) -> list[int]:
    try:
        tokens: list[int] = render(*arguments)
    except (TemplateFailure, CannotContinue) as error:
        raise UnusableConversation(str(error)) from error
    return tokens


def _tools_key(tools: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(list(tools), sort_keys=True)


def _messages(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "conversations" not in data:
        return [_with_text_arguments(message) for message in data["messages"]]
    system = [{"role": "system", "content": data["system"]}] if data.get("system") else []
    return [*system, *map(_from_sharegpt, data["conversations"])]


def _with_text_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Calls whose arguments are objects, as in files of `datasets`, with the text that the chat API has."""
    calls = [
        {**call, "function": {**call["function"], "arguments": arguments_text(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, **({"tool_calls": calls} if calls else {})}


def _from_sharegpt(turn: Mapping[str, Any]) -> dict[str, Any]:
    if turn["from"] != "function_call":
        return {"role": _SHAREGPT_ROLES[turn["from"]], "content": turn["value"]}
    call = json.loads(turn["value"])
    function = {"name": call["name"], "arguments": arguments_text(call["arguments"])}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
