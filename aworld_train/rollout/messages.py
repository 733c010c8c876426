"""Requests of agents and the model's answers, in one form for every dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.response_constraints import NO_CONSTRAINTS, Miss, ResponseConstraints

Finish = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]


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
    """An outside endpoint gives no ``tokens`` and what belongs to them, only how many it ``counted``. It is
    ``malformed`` where a tool call begins that cannot be parsed, or a thought has no end. ``stop`` is the stop text
    that ended the turn, which is among the tokens and not in the content.
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
