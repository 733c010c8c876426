"""The interface of a dialect: reads a request's body, and writes an answer, its stream of events, and an error.

An answer is sampled as a whole before the first event of its stream is written: no token reaches an agent before the
trainer has recorded it, and a refusal still has its HTTP status.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aworld_train.episode.message import Message
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.model_gateway.tools import OfferedTools
from aworld_train.rollout.response_constraints import RequestRules

_RANDOM = random.Random()  # not the global one, which programs seed
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class ParsedRequest:
    """A parsed request; ``tools``, and ``sent`` messages where each is parsed separately, are those of the client.

    ``carried`` are the messages that a request finds which names this answer by ``response_id``, without the answer.
    """

    request: ChatRequest
    stream: bool = False
    usage: bool = False
    sent: Sequence[Any] = ()
    tools: OfferedTools | None = None
    response_id: str = ""
    previous_id: str | None = None
    carried: Sequence[Message] = ()


@dataclass(frozen=True)
class Surroundings:
    """What a request is read with; ``responses`` are the agent's conversations up to an answer, by its identifier."""

    rules: RequestRules = field(default_factory=RequestRules)
    responses: dict[str, Sequence[Message]] = field(default_factory=dict)


EMPTY = Surroundings()


@dataclass(frozen=True)
class Dialect:
    """``read`` parses a body, or raises `RequestRefused`; parts that are equal in the agent's last request are taken
    from there. Only requests for several choices have several completions.
    """

    history: str
    read: Callable[[Json, ParsedRequest | None, Surroundings], ParsedRequest]
    answer: Callable[[Sequence[Completion], ParsedRequest, str], Json]
    events: Callable[[Sequence[Completion], ParsedRequest, str], Iterator[bytes]]
    error: Callable[[RequestRefused], Json]
    error_event: Callable[[RequestRefused], bytes]


def new_id(prefix: str) -> str:
    return f"{prefix}{_RANDOM.getrandbits(96):024x}"


def encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only escape
        return _in_ascii(value)


def _in_ascii(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def event(data: Json, name: str = "") -> bytes:
    """One server-sent event, in ASCII: some clients take other characters for line ends."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + _in_ascii(data) + b"\n\n"


def token_logprobs(completion: Completion) -> list[Json]:
    """The sampled tokens in OpenAI's format; empty if their texts were not requested."""
    likely = completion.top_logprobs or [()] * len(completion.texts)
    return [
        {**_logprob(text, logprob), "top_logprobs": [_logprob(*each) for each in others]}
        for text, logprob, others in zip(completion.texts, completion.logprobs, likely, strict=False)
    ]


def _logprob(text: str, logprob: float) -> Json:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace"))}
