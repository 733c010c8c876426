"""Outside language models for an episode: any OpenAI-compatible endpoint, or several as one."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from aworld_train.episode.message import Message
from aworld_train.rollout.chat_client import ChatClient, EndpointAddress
from aworld_train.rollout.chat_completion import ChatFault
from aworld_train.rollout.outage import Outage
from aworld_train.rollout.outcome import EpisodeFailure

_TIMEOUT_SECONDS = 120.0
_MAX_PAUSE = 8.0


class EndpointFailed(EpisodeFailure):
    def __init__(self, message: str, *, is_permanent: bool = False):
        super().__init__(message)
        self.is_permanent = is_permanent


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
        return cls(
            name,
            str(settings["url"]).rstrip("/"),
            str(settings["model"]),
            settings.get("key_variable"),
            float(settings.get("timeout", _TIMEOUT_SECONDS)),
        )

    @cached_property
    def client(self) -> ChatClient:
        return ChatClient(EndpointAddress(self.url, self.model, self.key_variable, needs_key=True))

    async def ask(self, messages: Sequence[Message], *, is_last: bool = True) -> str:
        """The model's text; where there are too many requests, the last endpoint is asked again within its time."""
        body = {"model": self.model, "messages": [message.for_chat() for message in messages]}
        outage = Outage(self.timeout, _MAX_PAUSE)
        while True:
            try:
                answer = await self.client.complete(body, self.timeout)
                break
            except ChatFault as fault:
                may_wait = is_last and fault.is_overload and fault.scope == "passing"
                pause = outage.pause(fault.retry_after) if may_wait else None
                if pause is None:
                    raise EndpointFailed(
                        f"the endpoint {self.name} gave no answer: {fault}",
                        is_permanent=fault.scope == "endpoint",
                    ) from fault
            await asyncio.sleep(pause)
        if answer.finish_reason in ("content_filter", "refusal"):
            raise EndpointFailed(
                f"the endpoint {self.name} refused ({answer.finish_reason}): {answer.content[:200]!r}"
            )
        if not answer.content.strip():
            raise EndpointFailed(f"the endpoint {self.name} answered with nothing")
        return answer.content


@dataclass(frozen=True)
class Failover:
    """Several endpoints, tried in order until one answers; the error of none has the reason of each."""

    endpoints: Sequence[Endpoint]

    async def ask(self, messages: Sequence[Message]) -> str:
        failures = []
        for endpoint in self.endpoints:
            try:
                return await endpoint.ask(messages, is_last=endpoint is self.endpoints[-1])
            except EndpointFailed as failure:
                failures.append(failure)
        raise EndpointFailed(
            "; ".join(map(str, failures)), is_permanent=all(failure.is_permanent for failure in failures)
        )
