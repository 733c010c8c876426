"""A model at an OpenAI-compatible endpoint: its requests, repeated where it was the endpoint that failed.

What an overloaded or faulty endpoint does (429, 5xx, no answer in time, a cut answer, no JSON) passes or it does not:
the same request is sent again, later each time, and each failure is counted by its kind. What the endpoint refuses (a
wrong key, an unknown model) is the same for all episodes and ends all of them.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import aiohttp

from aworld_train.api_keys import can_be_sent, key_in
from aworld_train.errors import ModelError, ModelNotFound, UsageError
from aworld_train.network import proxy_for
from aworld_train.rollout.adaptive_limit import AdaptiveLimit
from aworld_train.rollout.chat_model import ChatAnswer, ChatModel, ContextExceeded
from aworld_train.rollout.http_client import (
    UVICORN_KEEPALIVE_SECONDS,
    RequestFailed,
    SessionPerLoop,
    request_json,
)
from aworld_train.rollout.messages import Message, ToolCall
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.thinking import part_text

KEY_VARIABLE = "OPENAI_API_KEY"
MAX_OUTAGE_SECONDS = 600.0
"""How long a request is repeated, from its first failure on."""
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
_LIST_SECONDS = 30.0
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
# Too early, too many, or something that went wrong on the server's side (RFC 9110, RFC 8470, RFC 6585).
_PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_TOO_MANY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_OF_CONTEXT = ("context_length_exceeded", "context length", "context window", "maximum context", "too long")
_NEWER_MAX_TOKENS = "max_completion_tokens"  # the only name that OpenAI's reasoning models take
_NO_CONVERSATION = "its answer is no chat completion"
_MAX_COUNT = 1_000_000_000  # of tokens in a call: more is none

FaultKind = Literal["429", "5xx", "other_status", "timeout", "connection", "cut", "no_json", "no_completion"]
"""How a request failed that was sent again."""


@dataclass(frozen=True)
class EndpointAddress:
    """Where a model is.

    Attributes:
        url: Base address, which ends where ``/chat/completions`` begins.
        model: The model's name there.
        key_variable: The environment variable with the key, if it takes one.
    """

    url: str
    model: str
    key_variable: str = KEY_VARIABLE


class ChatEndpoint:
    """A model at an endpoint, for all episodes of a process.

    Args:
        address: Where it is.
        concurrency: The most requests at the same time; fewer while the endpoint refuses some.
        request_timeout: Seconds in which one request must be answered.

    Attributes:
        name: What agents call the model.
        tokenizer: None, for its tokens are not known.
        refusal: Why the endpoint takes no request; None as long as it does.

    Raises:
        ModelError: The address or the key cannot be used.
    """

    def __init__(self, address: EndpointAddress, *, concurrency: int, request_timeout: float):
        self.name = address.model
        self.tokenizer = None
        self.refusal: str | None = None
        self.limit = AdaptiveLimit(concurrency)
        self.time_limit = aiohttp.ClientTimeout(total=request_timeout)
        self.seconds = request_timeout
        self.max_tokens_name = "max_tokens"
        self._address = address
        self.url, self.key = _checked(address)
        self.http = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS)

    def for_episode(self) -> "EpisodeEndpoint":
        """The model as one episode sees it, which counts the failures of its requests."""
        return EpisodeEndpoint(self)

    async def close(self) -> None:
        """Do nothing: connections end with the event loop."""

    def refuse(self, error: RequestFailed) -> None:
        """Take note that the endpoint takes no request."""
        if error.status == HTTPStatus.UNAUTHORIZED:
            remedy = f" Put its key into {self._address.key_variable}."
        elif error.status == HTTPStatus.NOT_FOUND:
            remedy = f" Is there a model {self.name!r}, and does the address end before /chat/completions?"
        else:
            remedy = ""
        self.refusal = f"{self.url} refuses requests: {error}.{remedy}"


async def only_model(url: str, key_variable: str = KEY_VARIABLE) -> str:
    """The name of the one model that an endpoint has.

    Raises:
        ModelError: It does not say, or has several.
    """
    base, key = _checked(EndpointAddress(url, "", key_variable))
    http = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS)
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            answer = await request_json(await http.get(), "GET", f"{base}/models", key=key)
    except (RequestFailed, TimeoutError, ValueError) as error:
        reason = str(error) or f"no answer in {_LIST_SECONDS:.0f} seconds"
        raise ModelError(
            f"{base}/models does not say which models there are: {reason}. Name one with --model."
        ) from error
    match answer:
        case {"data": [{"id": str(name)}]}:
            return name
        case {"data": [{"id": str()}, *_] as models}:
            names = [str(model.get("id")) for model in models if isinstance(model, dict)]
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise ModelNotFound(f"{base} has several models: {listed}. Name one with --model.")
    raise ModelNotFound(f"{base}/models names no model. Name one with --model.")


class EpisodeEndpoint(ChatModel):
    """The model at an endpoint, as one episode sees it.

    Args:
        endpoint: The endpoint.

    Attributes:
        faults: The failures of its requests by kind (``FaultKind``).
    """

    def __init__(self, endpoint: ChatEndpoint):
        self._endpoint = endpoint
        self.faults: Counter[str] = Counter()

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: SamplingParams,
        max_tokens: int,
        *,
        use_tools: bool = True,
    ) -> ChatAnswer:
        """As ``ChatModel.answer``."""
        body = {
            "model": self._endpoint.name,
            "messages": [message.for_chat(with_images=True) for message in messages],
            **_sampling(sampling),
        }
        if tools:
            body["tools"] = list(tools)
            if not use_tools:
                body["tool_choice"] = "none"
        failed_at: float | None = None
        pause = _FIRST_PAUSE
        while True:
            began = await self._endpoint.limit.acquire()
            try:
                return await self._ask(body, max_tokens)
            except _Failure as failure:
                self.faults[failure.kind] += 1
                if failure.refused:
                    self._endpoint.limit.refused(began, failure.retry_after)
                reason, retry_after = failure.reason, failure.retry_after
            finally:
                self._endpoint.limit.release()
            now = time.monotonic()
            failed_at = now if failed_at is None else failed_at
            wait = max(retry_after, pause * random.uniform(0.5, 1.0))
            if now + wait > failed_at + MAX_OUTAGE_SECONDS:
                raise EpisodeFailure(
                    f"the endpoint gave no answer for {now - failed_at:.0f} seconds: {reason}"
                )
            await asyncio.sleep(wait)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _ask(self, body: Mapping[str, Any], max_tokens: int) -> ChatAnswer:
        """One request.

        Raises:
            _Failure: It failed in a way that may pass.
            ContextExceeded: The conversation is too long.
            EpisodeFailure: It was refused.
        """
        endpoint = self._endpoint
        if endpoint.refusal is not None:
            raise EpisodeFailure(endpoint.refusal)
        try:
            data = await request_json(
                await endpoint.http.get(),
                "POST",
                f"{endpoint.url}/chat/completions",
                key=endpoint.key,
                body={**body, endpoint.max_tokens_name: max_tokens},
                time_limits=endpoint.time_limit,
            )
            answer = _answer(data)
        except RequestFailed as error:
            is_other_name = endpoint.max_tokens_name != _NEWER_MAX_TOKENS and _NEWER_MAX_TOKENS in str(error)
            if error.status == HTTPStatus.BAD_REQUEST and is_other_name:
                endpoint.max_tokens_name = _NEWER_MAX_TOKENS
                return await self._ask(body, max_tokens)
            raise self._failure(error, body) from error
        except _NoCompletion as error:
            raise _Failure("no_completion", str(error)) from error
        except ValueError as error:
            raise _Failure("no_json", "its answer is no JSON") from error
        endpoint.limit.answered()
        return answer

    def _failure(self, error: RequestFailed, body: Mapping[str, Any]) -> Exception:
        """What a failed request means for the episode."""
        status = error.status
        if status is None:
            return _Failure(*self._connection_failure(error))
        if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind: FaultKind = "other_status"
            if status == HTTPStatus.TOO_MANY_REQUESTS:
                kind = "429"
            elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                kind = "5xx"
            return _Failure(kind, str(error), error.retry_after, status in _TOO_MANY)
        if status in _REFUSED:
            self._endpoint.refuse(error)
            return EpisodeFailure(str(self._endpoint.refusal))
        is_long = any(words in str(error).lower() for words in _OF_CONTEXT)
        # A first prompt with its answer that does not fit is the recipe's fault, not the agent's.
        if is_long and any(message["role"] == "assistant" for message in body["messages"]):
            return ContextExceeded(f"the conversation is too long for the model: {error}")
        hint = " (rollout.max_response_tokens says how many tokens it is asked for)" if is_long else ""
        return EpisodeFailure(f"the endpoint refused the request: {error}{hint}")

    def _connection_failure(self, error: RequestFailed) -> tuple[FaultKind, str]:
        match error.__cause__:
            case TimeoutError():
                return "timeout", f"no answer in {self._endpoint.seconds:g} seconds"
            case aiohttp.ClientPayloadError():
                return "cut", f"its answer was cut off: {error}"
        return "connection", str(error)


class _Failure(Exception):
    """A request failed in a way that may pass.

    Attributes:
        kind: How.
        reason: In words.
        retry_after: Seconds that the endpoint asks to wait.
        refused: Whether it refused the request because there were too many.
    """

    def __init__(self, kind: FaultKind, reason: str, retry_after: float = 0.0, refused: bool = False):
        super().__init__(reason)
        self.kind, self.reason, self.retry_after, self.refused = kind, reason, retry_after, refused


class _NoCompletion(Exception):
    """JSON that is no chat completion."""


def _checked(address: EndpointAddress) -> tuple[str, str]:
    """The base address and the key.

    Raises:
        ModelError: One of them cannot be used.
    """
    url = address.url.rstrip("/").removesuffix("/chat/completions")
    if not url.startswith(("http://", "https://")):
        raise ModelNotFound(
            f"{address.url} is no address of an endpoint: it begins with http:// or https://."
        )
    key = key_in(address.key_variable)
    if not can_be_sent(key):
        raise ModelError(f"What is in {address.key_variable} cannot be sent as a key.")
    try:
        proxy_for(url)
    except UsageError:
        raise
    except Exception as error:
        raise ModelNotFound(f"{address.url} is no address of an endpoint: {error}.") from error
    return url, key


def _sampling(sampling: SamplingParams) -> dict[str, Any]:
    """Sampling as OpenAI's API has it; what changes nothing is not sent, for many endpoints refuse what they miss."""
    body: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def _answer(data: Any) -> ChatAnswer:
    """The answer in a chat completion.

    Raises:
        _NoCompletion: It is none.
    """
    match data:
        case {"choices": [{"message": dict() as message, **choice}, *_], **rest}:
            pass
        case _:
            raise _NoCompletion(_NO_CONVERSATION)
    calls = tuple(_calls(message))
    reason = choice.get("finish_reason")
    if reason not in (None, "stop", "length", "tool_calls", "function_call", "content_filter", "eos"):
        # vLLM and SGLang give a request up with `abort` when they are ended.
        raise _NoCompletion(f"it gave the request up (finish_reason {str(reason)[:40]!r})")
    content = _text(message.get("content"))
    usage = rest.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return ChatAnswer(
        content,
        _text(message.get("reasoning_content") or message.get("reasoning")),
        calls,
        "length" if reason == "length" else "tool_calls" if calls else "stop",
        _count(counts.get("prompt_tokens")),
        _count(counts.get("completion_tokens")),
    )


def _calls(message: Mapping[str, Any]) -> list[ToolCall]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise _NoCompletion(_NO_CONVERSATION)
    found = []
    for number, call in enumerate(calls):
        match call:
            case {"function": {"name": str(name), "arguments": str(arguments)}}:
                call_id = call.get("id")
                found.append(
                    ToolCall(
                        name, arguments, call_id if isinstance(call_id, str) and call_id else f"call_{number}"
                    )
                )
            case _:
                raise _NoCompletion("one of its tool calls has no name or no arguments")
    return found


def _text(content: Any) -> str:
    """A content's text: a string, or the text parts of a list.

    Raises:
        _NoCompletion: It is something else.
    """
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "".join(part_text(part) for part in content if isinstance(part, dict))
    raise _NoCompletion(_NO_CONVERSATION)


def _count(value: Any) -> int:
    """A number of tokens that an endpoint says; 0 where it says nothing that can be one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= _MAX_COUNT else 0
