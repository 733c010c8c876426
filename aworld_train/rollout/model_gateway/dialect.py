"""What a dialect is: how a body is read, and how an answer, a stream of it, and an error are written.

Answers are sampled as a whole before the first of a stream's events is made: a token that the trainer has not seen
whole cannot reach an agent, and a refusal still has its HTTP status.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.model_gateway.tools import OfferedTools

_RANDOM = random.Random()  # not the one that programs seed
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class ParsedRequest:
    """A request that was read.

    Attributes:
        request: What the conversation is given.
        stream: Whether the answer is wanted as events.
        usage: Whether a stream of the chat dialect ends with the number of tokens.
        sent: The messages as they were sent, in the dialects that read each by itself.
        tools: The tools as they were sent and as they were read.
    """

    request: ChatRequest
    stream: bool = False
    usage: bool = False
    sent: Sequence[Any] = ()
    tools: OfferedTools | None = None


@dataclass(frozen=True)
class Dialect:
    """One way to ask.

    Attributes:
        history: The parameter that holds the history.
        read: A body becomes a request; raises `RequestRefused`. What it has in common with the agent's last request in
            this dialect, where there is one, is taken from there: an agent sends its whole history every time.
        answer: The answer's body; the string is the model's name.
        events: The same as server-sent events.
        error: The body of a refusal.
        error_event: The same once a stream has begun.
    """

    history: str
    read: Callable[[Json, ParsedRequest | None], ParsedRequest]
    answer: Callable[[Completion, ParsedRequest, str], Json]
    events: Callable[[Completion, ParsedRequest, str], Iterator[bytes]]
    error: Callable[[RequestRefused], Json]
    error_event: Callable[[RequestRefused], bytes]


def new_id(prefix: str) -> str:
    """A fresh identifier."""
    return f"{prefix}{_RANDOM.getrandbits(96):024x}"


def encode(value: Any) -> bytes:
    """``value`` as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which can be written as an escape only
        return _in_ascii(value)


def _in_ascii(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def event(data: Json, name: str = "") -> bytes:
    """One server-sent event; in ASCII, in which no client finds more ends of lines than there are."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + _in_ascii(data) + b"\n\n"


def token_logprobs(completion: Completion) -> list[Json]:
    """The sampled tokens as OpenAI has them; empty where they are not known."""
    return [
        {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace")), "top_logprobs": []}
        for text, logprob in zip(completion.texts, completion.logprobs, strict=False)
    ]
