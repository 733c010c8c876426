"""Chat messages in one form, for agents' requests of every dialect, chat templates and the matching of histories."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.image_files import data_uri
from aworld_train.rollout.images import Image, marked_images
from aworld_train.rollout.response_constraints import NO_CONSTRAINTS, Miss, ResponseConstraints
from aworld_train.rollout.whole_text import load_whole, whole_text
from aworld_train.thinking import part_text

Finish = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]
Role = Literal["system", "user", "assistant", "tool"]
_MAX_EXACT_FLOAT = 1 << 53


class RequestRefused(Exception):
    """A refused request: an HTTP status, a code for programs, and a message for people."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_request", parameter: str = ""
    ):
        super().__init__(message)
        self.status = status
        self.code = code
        self.parameter = parameter


@dataclass(frozen=True)
class Message:
    """One message of a conversation; ``name`` is the tool of a result, ``reasoning`` what the program sends back."""

    role: Role
    content: str
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
            tuple(ToolCall(call["name"], _as_text(call["arguments"])) for call in calls),
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

    def for_template(self, text_arguments: bool = False) -> dict[str, Any]:
        """The message as chat templates read it: arguments as text, or as an object where they are a JSON object."""
        data: dict[str, Any] = {
            "role": self.role,
            "content": self._parts(lambda _: {"type": "image"}) if self.images else self.content,
        }
        if self.tool_calls:
            data["tool_calls"] = [
                call.for_chat(None if text_arguments else _object_or_text(call.arguments))
                for call in self.tool_calls
            ]
        if self.role == "tool":
            data |= {"tool_call_id": self.call_id} if self.call_id else {}
            data |= {"name": self.name} if self.name else {}
        if self.reasoning:
            data["reasoning_content"] = self.reasoning
        return data

    def with_text(self, content: str) -> "Message":
        """The same message with another text; its images stand after it."""
        images = tuple(replace(image, position=len(content)) for image in self.images)
        return replace(self, content=content, images=images)

    def _parts(self, part_of: Callable[[Image], dict[str, Any]]) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        begin = 0
        for image in self.images:
            if image.position > begin:
                parts.append({"type": "text", "text": self.content[begin : image.position]})
            parts.append(part_of(image))
            begin = image.position
        if begin < len(self.content):
            parts.append({"type": "text", "text": self.content[begin:]})
        return parts

    def for_chat(self, *, with_images: bool = False) -> dict[str, Any]:
        """The message in the form of the OpenAI chat API; without ``with_images`` a note stands for each image."""
        content: Any = "\n".join([self.content, *["[image, not shown]" for _ in self.images]])
        if with_images and self.images:
            content = self._parts(
                lambda image: {"type": "image_url", "image_url": {"url": data_uri(image.file)}}
            )
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [call.for_chat() for call in self.tool_calls]
        if self.role == "tool":
            data["tool_call_id"] = self.call_id
        return data


@dataclass(frozen=True)
class ChatRequest:
    """An agent's request to the model, independent of its dialect.

    ``tools`` must not be changed once they are in a request. ``temperature``, ``top_p`` and ``top_k`` are the agent's,
    and the trainer decides. Each of the ``choices`` is sampled by a call of its own. ``plain``: the only message is a
    text to be continued, without a chat template.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    use_tools: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    constraints: ResponseConstraints = NO_CONSTRAINTS
    choices: int = 1
    plain: bool = False


@dataclass(frozen=True)
class Completion:
    """The model's answer.

    An outside endpoint gives no ``tokens`` and what belongs to them, only how many it ``counted``. It is ``malformed``
    where a tool call begins that cannot be parsed, or a thought has no end. ``stop`` is the stop text that ended the
    turn, which is among the tokens and not in the content.
    """

    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Finish = "stop"
    prompt_tokens: int = 0
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    texts: Sequence[str] = field(default=(), repr=False)
    top_logprobs: Sequence[Sequence[tuple[str, float]]] = field(default=(), repr=False)
    malformed: bool = False
    seconds: float = 0.0
    stop: str = ""
    misses: Sequence[Miss] = ()
    counted: int = 0

    @property
    def token_count(self) -> int:
        return self.counted or len(self.tokens)

    @cached_property
    def message(self) -> Message:
        """The answer as a message, as the next request will contain it."""
        return Message("assistant", self.content, self.tool_calls, reasoning=self.reasoning)


class Conversation(Protocol):
    """One agent's side of an episode: it answers the requests of every dialect."""

    async def complete(self, request: ChatRequest) -> Completion:
        """Sample an answer; raises ``RequestRefused`` with the status and code for the agent."""

    def undelivered(self, completion: Completion, was_sent: bool = False) -> None:
        """Take note that an answer may not have reached the client; one that was not sent has not."""

    def note_overlong(self) -> None:
        """Take note that a request was refused because the model's context cannot hold it."""

    async def count_tokens(self, request: ChatRequest) -> int:
        """The number of tokens that a request would give the model."""


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


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _object_or_text(arguments: str) -> Any:
    try:
        value = load_whole(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
