"""Outside language models for an episode: any OpenAI-compatible endpoint, or several as one.

Keys come from environment variables and appear in no error, even if a server repeats them. Every request has one time
limit for its whole answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aworld_train.api_keys import can_be_sent, key_in
from aworld_train.rollout.http_client import (
    UVICORN_KEEPALIVE_SECONDS,
    RequestFailed,
    SessionPerLoop,
    request_json,
)
from aworld_train.rollout.messages import Message
from aworld_train.rollout.outcome import EpisodeFailure

_TIMEOUT_SECONDS = 120.0
_HTTP = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS)


class EndpointFailed(EpisodeFailure):
    """An outside language model gave no answer."""


@dataclass(frozen=True)
class Endpoint:
    """One model at one address; ``url`` ends where ``/chat/completions`` begins."""

    name: str
    url: str
    model: str
    key_variable: str | None = None
    timeout: float = _TIMEOUT_SECONDS

    @classmethod
    def read(cls, name: str, settings: Mapping[str, Any]) -> Self:
        """From a recipe's ``endpoints``."""
        return cls(
            name,
            str(settings["url"]).rstrip("/"),
            str(settings["model"]),
            settings.get("key_variable"),
            float(settings.get("timeout", _TIMEOUT_SECONDS)),
        )

    async def ask(self, messages: Sequence[Message]) -> str:
        """The model's text.

        Raises:
            EndpointFailed: it could not be reached, refused, gave an empty answer, or took too long.
        """
        key = self._key()
        body = {"model": self.model, "messages": [message.for_chat() for message in messages]}
        try:
            async with asyncio.timeout(self.timeout):
                session = await _HTTP.get()
                answer = await request_json(
                    session, "POST", f"{self.url}/chat/completions", key=key, body=body
                )
            text = answer["choices"][0]["message"]["content"]
        except TimeoutError as error:
            raise EndpointFailed(
                f"the endpoint {self.name} gave no answer in {self.timeout:g} seconds"
            ) from error
        except RequestFailed as error:
            raise EndpointFailed(f"the endpoint {self.name} gave no answer: {error}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise EndpointFailed(
                f"the endpoint {self.name} gave no answer: it sent no chat completion"
            ) from error
        if not isinstance(text, str) or not text.strip():
            raise EndpointFailed(f"the endpoint {self.name} answered with nothing")
        return text

    def _key(self) -> str | None:
        if not self.key_variable:
            return None
        key = key_in(self.key_variable)
        if not key:
            raise EndpointFailed(f"the endpoint {self.name} needs its key in {self.key_variable}")
        if not can_be_sent(key):
            raise EndpointFailed(
                f"the endpoint {self.name}: what is in {self.key_variable} cannot be sent as a key"
            )
        return key


@dataclass(frozen=True)
class Failover:
    """Several endpoints, tried in order until one answers."""

    endpoints: Sequence[Endpoint]

    async def ask(self, messages: Sequence[Message]) -> str:
        """The first answer.

        Raises:
            EndpointFailed: none answered; the message has the reason of each.
        """
        failures = []
        for endpoint in self.endpoints:
            try:
                return await endpoint.ask(messages)
            except EndpointFailed as failure:
                failures.append(str(failure))
        raise EndpointFailed("; ".join(failures))
