"""Other language models that an episode may ask: any OpenAI-compatible endpoint, and several as one.

Keys come from environment variables and are in no error. Every request has a time limit.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from aworld_train.env.address import is_near
from aworld_train.rollout.messages import Message
from aworld_train.rollout.outcome import EpisodeFailure

_SECONDS = 120.0


class EndpointFailed(EpisodeFailure):
    """An outside language model gave no answer."""


@dataclass(frozen=True)
class Endpoint:
    """One model at one address; ``url`` ends where ``/chat/completions`` begins."""

    name: str
    url: str
    model: str
    key_variable: str | None = None
    timeout: float = _SECONDS

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any]) -> Self:
        """From a recipe's ``endpoints``."""
        return cls(
            name,
            str(given["url"]).rstrip("/"),
            str(given["model"]),
            given.get("key_variable"),
            float(given.get("timeout", _SECONDS)),
        )

    async def ask(self, messages: Sequence[Message]) -> str:
        """The model's text.

        Raises:
            EndpointFailed: it could not be reached, refused, or answered with nothing.
        """
        headers = {}
        if self.key_variable:
            key = os.environ.get(self.key_variable)
            if not key:
                raise EndpointFailed(f"the endpoint {self.name} needs its key in {self.key_variable}")
            headers["Authorization"] = f"Bearer {key}"
        body = {"model": self.model, "messages": [message.for_chat() for message in messages]}
        try:
            async with httpx.AsyncClient(timeout=self.timeout, trust_env=not is_near(self.url)) as client:
                response = await client.post(f"{self.url}/chat/completions", json=body, headers=headers)
                response.raise_for_status()
                text = response.json()["choices"][0]["message"]["content"]
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise EndpointFailed(f"the endpoint {self.name} gave no answer: {_said(error)}") from error
        if not isinstance(text, str) or not text.strip():
            raise EndpointFailed(f"the endpoint {self.name} answered with nothing")
        return text


@dataclass(frozen=True)
class Failover:
    """Several endpoints, asked in order until one answers."""

    endpoints: Sequence[Endpoint]

    async def ask(self, messages: Sequence[Message]) -> str:
        """The first answer.

        Raises:
            EndpointFailed: none answered; says why each did not.
        """
        failures = []
        for endpoint in self.endpoints:
            try:
                return await endpoint.ask(messages)
            except EndpointFailed as failure:
                failures.append(str(failure))
        raise EndpointFailed("; ".join(failures))


def _said(error: Exception) -> str:
    """What went wrong, in a line; never the request, which holds the key."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code} {error.response.text[:200]!r}"
    if isinstance(error, httpx.HTTPError):
        return f"{type(error).__name__} {error}"
    return "it sent no chat completion"
