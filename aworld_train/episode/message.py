"""Chat messages in one form, for agents' requests of every dialect, chat templates and the matching of histories."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from aworld_train.episode.images import Image, marked_images
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.image_files import data_uri
from aworld_train.thinking import part_text
from aworld_train.whole_text import load_whole, whole_text

_MAX_EXACT_FLOAT = 1 << 53


ImagePart = Callable[[Image], Mapping[str, Any]]


def _object_or_text(arguments: str) -> Any:
    try:
        value = load_whole(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


class Message(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One message of a conversation; ``name`` is the tool of a result, ``reasoning`` what the program sends back."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    reasoning: str = ""
    images: tuple[Image, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any], uris: Sequence[str] = ()) -> "Message":
        """A message of a dataset, in the chat API's form; ``uris`` are the images whose marks are in its text."""
        content, images = content_text(data.get("content")), tuple[Image, ...]()
        if uris:
            content, images = marked_images(content, uris)
        calls = [call["function"] for call in data.get("tool_calls") or ()]
        return cls(
            data["role"],
            content,
            tuple(ToolCall(call["name"], arguments_text(call["arguments"])) for call in calls),
            call_id=data.get("tool_call_id") or "",
            name=data.get("name") or "",
            images=images,
        )

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The message's meaning; messages with equal keys are the same for a conversation.

        The text of others is exact, since the model was shown it. The assistant's own is compared without the white
        space around it, which clients remove, because its recorded tokens stay as they are. Its reasoning is left to
        `same_reasoning`, since most clients do not send it back.
        """
        if self.role != "assistant":
            return (self.role, self.content, self.images)
        calls = tuple((call.name, canonical_arguments(call.arguments)) for call in self.tool_calls)
        return (self.role, self.content.strip(), calls)

    @property
    def size(self) -> int:
        texts = (self.content, self.reasoning, *(call.arguments for call in self.tool_calls))
        return sum(map(len, texts))

    def same_reasoning(self, recorded: "Message") -> bool:
        """Whether the reasoning that was sent is the recorded one; none at all is taken for the recorded one."""
        return not self.reasoning or self.reasoning.strip() == recorded.reasoning.strip()

    def for_template(
        self,
        text_arguments: bool = False,
        image_part: ImagePart = lambda _: {"type": "image"},
        arguments_of: Callable[[str], Any] = _object_or_text,
    ) -> dict[str, Any]:
        """The message as chat templates read it: arguments as text, or as an object where they are a JSON object.

        Thoughts are ``reasoning_content``, as vLLM, SGLang and chat templates call them.
        """
        data: dict[str, Any] = {"role": self.role, "content": self.parts(image_part)}
        if self.reasoning:
            data["reasoning_content"] = self.reasoning
        if self.tool_calls:
            data["tool_calls"] = [
                call.for_chat(None if text_arguments else arguments_of(call.arguments))
                for call in self.tool_calls
            ]
        if self.role == "tool":
            data |= {"tool_call_id": self.call_id} if self.call_id else {}
            data |= {"name": self.name} if self.name else {}
        return data

    def with_text(self, content: str) -> "Message":
        """The same message with another text; its images stand after it."""
        images = tuple(replace(image, position=len(content)) for image in self.images)
        return replace(self, content=content, images=images)

    def parts(self, image_part: ImagePart) -> str | list[Mapping[str, Any]]:
        if not self.images:
            return self.content
        parts: list[Mapping[str, Any]] = []
        begin = 0
        for image in self.images:
            if text := self.content[begin : image.position]:
                parts.append({"type": "text", "text": text})
            parts.append(image_part(image))
            begin = max(begin, image.position)
        if text := self.content[begin:]:
            parts.append({"type": "text", "text": text})
        return parts

    def for_chat(self, *, with_images: bool = False) -> dict[str, Any]:
        """The message in the form of the OpenAI chat API; without ``with_images`` a note stands for each image."""
        content: Any = "\n".join([self.content, *["[image, not shown]" for _ in self.images]])
        if with_images and self.images:
            content = self.parts(
                lambda image: {"type": "image_url", "image_url": {"url": data_uri(image.file)}}
            )
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [call.for_chat() for call in self.tool_calls]
        if self.role == "tool":
            data["tool_call_id"] = self.call_id
        return data


@lru_cache(maxsize=8192)
def canonical_arguments(arguments: str) -> str:
    """Arguments as JSON with sorted keys, no spaces, and numbers as JavaScript has them; other text is only stripped.

    JavaScript has only 64-bit floats: it writes 1.0 as 1, and whole numbers beyond 2**53 with other digits.
    """
    try:
        value = json.loads(arguments, parse_float=_number, parse_int=_integer)
        return whole_text(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    except (ValueError, RecursionError):
        return arguments.strip()


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _integer(text: str) -> float:
    number = int(text)
    try:
        return number if abs(number) <= _MAX_EXACT_FLOAT else int(float(number))
    except OverflowError:
        return number


def content_text(content: Any) -> str:
    """The text of content: a string, or the joined text parts of a list."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(map(part_text, content))


def arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
