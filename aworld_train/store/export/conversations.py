"""An agent's graph as what other formats have: conversations, each a list of messages."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import json

from aworld_train.episode.images import Image
from aworld_train.episode.message import ImagePart, Message
from aworld_train.image_files import data_uri
from aworld_train.store.content import StoredAgent
from aworld_train.store.reading import EpisodeHead, ReadBlob

_MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1


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


def messages_of(agent: StoredAgent, path: Sequence[int]) -> list[Message]:
    return [message for node in path for message in agent.nodes[node].messages]


def new_messages(agent: StoredAgent, node: int) -> list[Message]:
    """The messages that a sampled node's call added to what the model had seen or written before."""
    path = agent.path(node)[:-1]
    begin = next(
        (position + 1 for position in reversed(range(len(path))) if agent.nodes[path[position]].sampled), 0
    )
    return messages_of(agent, path[begin:])


def arguments_value(arguments: str) -> Any:
    """The value that a call's arguments are JSON of; the text itself where they are not, or most readers refuse them.

    Such are numbers that a double cannot hold, halves of surrogate pairs, and hundreds of lists in one another.
    """
    try:
        value = json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if _is_plain(value, _MAX_DEPTH) else arguments


def arguments_object(arguments: str) -> dict[str, Any] | None:
    value = arguments_value(arguments)
    return value if isinstance(value, dict) else None


def openai_message(message: Message, image_part: ImagePart) -> dict[str, Any]:
    """A message in the form of OpenAI's chat API, as chat templates and trainers read it.

    Arguments are an object, for which chat templates are written, or the text that the model wrote where that is none.
    """
    return message.for_template(image_part=image_part, arguments_of=_object_or_text)


def digest_part(image: Image) -> dict[str, Any]:
    """An image by the SHA-256 of its file, for formats that would repeat it with every call."""
    return {"type": "image", "sha256": image.digest}


def image_writer(read_blob: ReadBlob, make_part: Callable[[bytes], Mapping[str, Any]]) -> ImagePart:
    """What ``make_part`` makes of an image's file, or a text where the file is not kept."""

    def part(image: Image) -> Mapping[str, Any]:
        data = read_blob(image.digest)
        return {"type": "text", "text": "[an image that is not kept]"} if data is None else make_part(data)

    return part


def embedded_part(read_blob: ReadBlob) -> ImagePart:
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


def _object_or_text(arguments: str) -> dict[str, Any] | str:
    value = arguments_object(arguments)
    return arguments if value is None else value
