"""Chat messages in one form, whoever wrote them: what agents send, what templates render, what histories match by.

Every dialect (OpenAI chat, OpenAI responses, Anthropic messages) is turned into these at the door. A message's ``key``
says what it means and leaves out what programs change on the way back: how arguments are spaced, how content is cut
into parts, what the model thought, which identifier a call was given.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant", "tool"]


class RequestRefused(Exception):
    """A request that gets no answer: an HTTP status, a code for programs, a sentence for people."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_request", parameter: str = ""
    ):
        super().__init__(message)
        self.status = status
        self.code = code
        self.parameter = parameter


@dataclass(frozen=True)
class ToolCall:
    """A tool call as the model wrote it; ``arguments`` is JSON text that may be anything."""

    name: str
    arguments: str
    call_id: str = ""


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        content: The text; other content does not reach a language model here.
        tool_calls: What an assistant asks for.
        call_id: The call that a tool's result belongs to.
        name: The tool that a result comes from, where it is known.
        reasoning: What the assistant thought, where the program sends it back.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    reasoning: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Message":
        """A message as datasets have it: the chat API's, with content as text or as text parts."""
        calls = [call["function"] for call in data.get("tool_calls") or ()]
        return cls(
            data["role"],
            content_text(data.get("content")),
            tuple(ToolCall(call["name"], _as_text(call["arguments"])) for call in calls),
            call_id=data.get("tool_call_id") or "",
            name=data.get("name") or "",
        )

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What the message means; equal for messages that a conversation may be continued with alike."""
        calls = tuple((call.name, canonical_arguments(call.arguments)) for call in self.tool_calls)
        return (self.role, self.content.strip(), calls)

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates read it: arguments as an object where they are one."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _object_or_text(call.arguments)},
                }
                for call in self.tool_calls
            ]
        if self.role == "tool":
            data |= {"tool_call_id": self.call_id} if self.call_id else {}
            data |= {"name": self.name} if self.name else {}
        if self.reasoning:
            data["reasoning_content"] = self.reasoning
        return data

    def for_chat(self) -> dict[str, Any]:
        """The message as the OpenAI chat API has it."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.role == "tool":
            data["tool_call_id"] = self.call_id
        return data


@dataclass(frozen=True)
class ChatRequest:
    """What an agent asks the model, whatever the dialect it asked in.

    Attributes:
        messages: The whole conversation; at least one message.
        tools: OpenAI function schemas, which nobody changes once they are in a request.
        use_tools: False where the agent forbids tool calls this time.
        max_tokens: Most new tokens, or None.
        stop: Texts that end the turn; they are not part of the answer.
        temperature: What the agent would like; the trainer decides.
        top_p: As above.
        top_k: As above.
        logprobs: Whether the agent wants to see the text and log-probability of each token.
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


@dataclass(frozen=True)
class Completion:
    """What the model answered.

    Attributes:
        content: The text for the reader, without reasoning and tool calls.
        reasoning: What came before it inside the model's thinking tags.
        tool_calls: The calls it wrote, each with an identifier.
        finish_reason: ``stop``, ``tool_calls`` or ``length`` (cut off).
        prompt_tokens: How many tokens the model was given.
        tokens: The sampled tokens; empty where an outside endpoint answered, as are the next two.
        logprobs: The log-probability of each.
        texts: The text of each, where it was asked for.
        malformed: Whether it began a tool call that cannot be read.
        seconds: How long the model took.
    """

    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Literal["stop", "tool_calls", "length"] = "stop"
    prompt_tokens: int = 0
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    texts: Sequence[str] = field(default=(), repr=False)
    malformed: bool = False
    seconds: float = 0.0

    @cached_property
    def message(self) -> Message:
        """The answer as the next request will contain it."""
        return Message("assistant", self.content, self.tool_calls, reasoning=self.reasoning)


class Conversation(Protocol):
    """One agent's side of an episode: what a dialect hands its requests to."""

    async def complete(self, request: ChatRequest) -> Completion:
        """Sample an answer.

        Raises:
            Refused: with the status and code that the agent is to be told.
        """


@lru_cache(maxsize=8192)
def canonical_arguments(arguments: str) -> str:
    """Arguments as JSON with sorted keys and no spaces; text that is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments.strip()


def content_text(content: Any) -> str:
    """Content that is text, or a list of parts of which those that are text count."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in content)


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _object_or_text(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
