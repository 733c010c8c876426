"""One client for all chat endpoints: of evaluations, judges and helpers.

It learns from an endpoint's errors which parameters the endpoint does not take, sends them no more and says so once.
Keys come from environment variables and appear in no error, even if a server repeats them.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from aworld_train.api_keys import can_be_sent, key_in, without_key
from aworld_train.errors import ModelError, ModelNotFound, UsageError
from aworld_train.network import proxy_for, without_passwords
from aworld_train.rollout.chat_completion import (
    ChatAnswer,
    ChatFault,
    failed_generation,
    fault_of,
    read_completion,
)
from aworld_train.rollout.http_client import (
    UVICORN_KEEPALIVE_SECONDS,
    RequestFailed,
    SessionPerLoop,
    request_json,
)

log = logging.getLogger(__name__)

KEY_VARIABLE = "OPENAI_API_KEY"
_CHAT_PATH = "/chat/completions"
_OPTIONAL = frozenset(
    {"temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "max_completion_tokens"}
)
_OF_MESSAGE = frozenset({"role", "content", "tool_calls"})
_OF_CALL = frozenset({"id", "type", "function"})
_NEWER_NAMES = {"max_tokens": "max_completion_tokens"}  # the only name that OpenAI's reasoning models take
_MAX_BYTES = 16 << 20
_HTTP = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS)


@dataclass(frozen=True)
class EndpointAddress:
    """Where a model is; ``url`` ends where ``/chat/completions`` begins, with a query if the endpoint wants one."""

    url: str
    model: str
    key_variable: str | None = KEY_VARIABLE
    needs_key: bool = False

    def url_of(self, path: str) -> str:
        try:
            scheme, host, base, query, _ = urlsplit(self.url)
            url = urlunsplit((scheme, host, base.rstrip("/").removesuffix(_CHAT_PATH) + path, query, ""))
            if scheme not in ("http", "https"):
                raise ValueError("it begins with http:// or https://")
            proxy_for(url)
        except UsageError:
            raise
        except Exception as error:
            raise ModelNotFound(f"{self.url} is not the address of an endpoint: {error}.") from error
        return url

    def key(self) -> str:
        key = key_in(self.key_variable) if self.key_variable else ""
        if self.needs_key and self.key_variable and not key:
            raise ModelError(f"The key in the environment variable {self.key_variable} is missing.")
        if not can_be_sent(key):
            raise ModelError(f"What is in {self.key_variable} cannot be sent as a key.")
        return key

    async def request(self, method: str, path: str, seconds: float, body: Any = None) -> Any:
        """The JSON at a path; raises ``RequestFailed``, and ``ValueError`` for what is not JSON."""
        url, key = self.url_of(path), self.key()
        return await request_json(
            await _HTTP.get(),
            method,
            url,
            key=key,
            # Azure takes its keys in a header of its own, and only tokens as bearer.
            headers={"api-key": key} if key and "api-version=" in url else {},
            body=body,
            time_limits=aiohttp.ClientTimeout(total=seconds),
            max_bytes=_MAX_BYTES,
        )


class ChatClient:
    """Sends requests to one model; ``not_taken`` are parameters and keys of messages that it does not take."""

    def __init__(self, address: EndpointAddress):
        self.address = address
        self.not_taken: set[str] = set()

    async def complete(self, body: Mapping[str, Any], seconds: float) -> ChatAnswer:
        """The answer to a chat completion's request; raises ``ChatFault``."""
        while True:
            sent = self._fitted(body)
            try:
                return await self._ask(sent, seconds)
            except ChatFault as fault:
                if not self._learn(fault, sent):
                    raise

    def check_key(self) -> None:
        """Raise ``ChatFault`` if the key is missing, or cannot be sent."""
        try:
            self.address.key()
        except ModelError as error:
            raise ChatFault("connection", error.message, "endpoint") from error

    def without_key(self, text: str) -> str:
        return without_key(key_in(self.address.key_variable or ""), text)

    async def _ask(self, body: Mapping[str, Any], seconds: float) -> ChatAnswer:
        try:
            return read_completion(await self.address.request("POST", _CHAT_PATH, seconds, body))
        except ChatFault as fault:
            fault.args = (self.without_key(str(fault)),)
            raise
        except (ModelError, UsageError) as error:
            raise ChatFault("connection", error.message, "endpoint") from error
        except RequestFailed as error:
            if answer := failed_generation(error.body):
                return answer
            raise self._fault(error, seconds) from error
        except ValueError as error:
            raise ChatFault("no_json", "its answer is not valid JSON") from error

    def _fault(self, error: RequestFailed, seconds: float) -> ChatFault:
        if error.status is not None:
            return fault_of(error.status, error.body, error.text, error.retry_after)
        match error.__cause__:
            case TimeoutError():
                return ChatFault("timeout", f"no answer in {seconds:.3g} seconds")
            case aiohttp.ClientPayloadError():
                return ChatFault("cut", f"its answer was cut off: {error}")
        return ChatFault("connection", str(error), "passing" if error.may_pass else "request")

    def _fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        fitted = {}
        for key, value in body.items():
            name = _NEWER_NAMES.get(key, key) if key in self.not_taken else key
            if name not in self.not_taken:
                fitted[name] = value
        if self.not_taken:
            fitted["messages"] = [self._fitted_message(message) for message in body["messages"]]
        return fitted

    def _fitted_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        kept = {
            key: value for key, value in message.items() if key in _OF_MESSAGE or key not in self.not_taken
        }
        if "tool_calls" in kept:
            kept["tool_calls"] = [
                {key: value for key, value in call.items() if key in _OF_CALL or key not in self.not_taken}
                for call in kept["tool_calls"]
            ]
        return kept

    def _learn(self, fault: ChatFault, sent: Mapping[str, Any]) -> bool:
        """Take note of what the endpoint does not take; False if the error says nothing new."""
        returned = [message for message in sent["messages"] if message["role"] == "assistant"]
        calls = [call for message in returned for call in message.get("tool_calls", ())]
        known = (
            (_OPTIONAL & sent.keys())
            | (set().union(*returned) - _OF_MESSAGE)
            | (set().union(*calls) - _OF_CALL)
        )
        refused = known & fault.named
        if {"temperature", "top_p"} <= refused:
            refused -= {"temperature"}  # Anthropic's models take one of both
        if new := refused - self.not_taken:
            self.not_taken |= new
            instead = {name: f"sent as {newer}" for name, newer in _NEWER_NAMES.items()}
            log.warning(
                "%s does not take what it is sent: %s",
                without_passwords(self.address.url),
                ", ".join(f"{name} is {instead.get(name, 'left out')}" for name in sorted(new)),
            )
        return bool(refused)
