"""Outside language models for an episode: any OpenAI-compatible endpoint, or several as one.

Keys come from environment variables and appear in no error, even if a server repeats them. Every request has one time
limit for its whole answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from aworld_train.api_keys import bearer, can_be_sent, key_in, without_key
from aworld_train.network import is_near
from aworld_train.rollout.messages import Message
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.rollout.tls import tls_context

_TIMEOUT_SECONDS = 120.0
_MAX_SHOWN_CHARS = 200  # of a server's error text


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
            # One limit for everything: httpx's limits hold for single reads, and a server may send one byte at a time.
            async with (
                asyncio.timeout(self.timeout),
                httpx.AsyncClient(
                    verify=tls_context(), timeout=None, trust_env=not is_near(self.url), headers=bearer(key)
                ) as client,
            ):
                response = await client.post(f"{self.url}/chat/completions", json=body)
                response.raise_for_status()
                text = response.json()["choices"][0]["message"]["content"]
        except TimeoutError as error:
            raise EndpointFailed(
                f"the endpoint {self.name} gave no answer in {self.timeout:g} seconds"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = what_failed(error, key)
            raise EndpointFailed(f"the endpoint {self.name} gave no answer: {reason}") from error
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


def what_failed(error: Exception, key: str | None) -> str:
    """A failed request's error in one line, without its key: servers repeat what they were sent."""
    reason = f"{type(error).__name__} {error}"
    if isinstance(error, httpx.HTTPStatusError):
        text = without_key(key, error.response.text)
        reason = f"HTTP {error.response.status_code} {text[:_MAX_SHOWN_CHARS]!r}"
    return without_key(key, reason)
