"""An agent's graph as what other formats have: conversations, each a list of messages."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.image_files import data_uri
from aworld_train.store.content import StoredAgent, StoredImage, StoredMessage
from aworld_train.store.reading import EpisodeHead

_MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1
ReadBlob = Callable[[str], bytes | None]
"""Reads a blob of the store by its digest; see ``Store.blob``."""


def conversation_ends(agent: StoredAgent) -> list[int]:
    """The sampled nodes after which the model wrote no more: each ends one conversation.

    A turn that no client received ends none, as it makes no training row.
    """
    turns = [number for number, node in enumerate(agent.nodes) if node.sampled and node.received]
    continued: set[int] = set()
    for turn in turns:
        while (turn := agent.nodes[turn].parent) >= 0 and turn not in continued:
            continued.add(turn)
    return [turn for turn in turns if turn not in continued]


def messages_of(agent: StoredAgent, path: Sequence[int]) -> list[StoredMessage]:
    return [message for node in path for message in agent.nodes[node].messages]


def new_messages(agent: StoredAgent, node: int) -> list[StoredMessage]:
    """The messages that a sampled node's call added to what the model had seen or written before."""
    path = agent.path(node)[:-1]
    begin = next(
        (position + 1 for position in reversed(range(len(path))) if agent.nodes[path[position]].sampled), 0
    )
    return messages_of(agent, path[begin:])


def arguments_object(call: ToolCall) -> dict[str, Any] | None:
    """A call's arguments as an object; None where they are anything else.

    What the model wrote may also be an object that most readers of JSON refuse: numbers that a double cannot hold, or
    hundreds of lists in one another.
    """
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_plain(value, _MAX_DEPTH) else None


def openai_message(
    message: StoredMessage, image_part: Callable[[StoredImage], Mapping[str, Any]]
) -> dict[str, Any]:
    """A message in the form of OpenAI's chat API, as chat templates and trainers read it.

    Arguments are an object, for which chat templates are written, or the text that the model wrote where that is none.
    Thoughts are ``reasoning_content``, as vLLM, SGLang and chat templates call them.
    """
    value: dict[str, Any] = {"role": message.role, "content": content_parts(message, image_part)}
    if message.reasoning:
        value["reasoning_content"] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    if message.call_id:
        value["tool_call_id"] = message.call_id
    if message.name:
        value["name"] = message.name
    return value


def content_parts(
    message: StoredMessage,
    image_part: Callable[[StoredImage], Mapping[str, Any]],
    text_part: Callable[[str], Mapping[str, Any]] = lambda text: {"type": "text", "text": text},
) -> str | list[Mapping[str, Any]]:
    """A message's content: its text, or parts where it has images."""
    if not message.images:
        return message.content
    parts: list[Mapping[str, Any]] = []
    begin = 0
    for image in message.images:
        if text := message.content[begin : image.position]:
            parts.append(text_part(text))
        parts.append(image_part(image))
        begin = max(begin, image.position)
    if text := message.content[begin:]:
        parts.append(text_part(text))
    return parts


def digest_part(image: StoredImage) -> dict[str, Any]:
    """An image by the SHA-256 of its file, for formats that would repeat it with every call."""
    return {"type": "image", "sha256": image.digest}


def image_writer(
    read_blob: ReadBlob, make_part: Callable[[bytes], Mapping[str, Any]]
) -> Callable[[StoredImage], Mapping[str, Any]]:
    """What ``make_part`` makes of an image's file, or a text where the file is not kept."""

    def part(image: StoredImage) -> Mapping[str, Any]:
        data = read_blob(image.digest)
        return {"type": "text", "text": "[an image that is not kept]"} if data is None else make_part(data)

    return part


def embedded_part(read_blob: ReadBlob) -> Callable[[StoredImage], Mapping[str, Any]]:
    """Images as OpenAI's chat API takes them, in the message itself."""
    return image_writer(read_blob, lambda data: {"type": "image_url", "image_url": {"url": data_uri(data)}})


def episode_facts(head: EpisodeHead, names: str) -> dict[str, Any]:
    """The fields and figures of an episode with these names, which have spaces between them."""
    facts = head.to_json()
    return {name: facts.get(name) for name in names.split()}


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in inner)
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    return not isinstance(value, float) or math.isfinite(value)


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    value = arguments_object(call)
    return call.arguments if value is None else value
