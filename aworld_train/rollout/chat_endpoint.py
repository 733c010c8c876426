"""A model at an OpenAI-compatible endpoint: its requests, repeated where it was the endpoint that failed.

After 429, 5xx, no answer in time, a cut answer or what is not JSON, the same request is sent again, later each time,
and each failure is counted by its kind. What the endpoint refuses (a wrong key, an unknown model, a spent quota) ends
all episodes.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from aworld_train.episode.message import Message
from aworld_train.errors import ModelError, ModelNotFound
from aworld_train.json_lines import decoded_lines
from aworld_train.rollout.adaptive_limit import AdaptiveLimit
from aworld_train.rollout.chat_client import KEY_VARIABLE, ChatClient, EndpointAddress
from aworld_train.rollout.chat_completion import ChatAnswer, ChatFault, message_for
from aworld_train.rollout.chat_model import ChatModel, ContextExceeded, FilterRefused
from aworld_train.rollout.http_client import RequestFailed
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outage import Outage
from aworld_train.rollout.outcome import EpisodeFailure

MAX_OUTAGE_SECONDS = 600.0  # how long a request is repeated, from its first failure on
_MAX_PAUSE = 30.0
_LIST_SECONDS = 30.0


class ChatEndpoint:
    """A model at an endpoint, for all episodes of a process; ``refusal`` is why it takes no more requests.

    With a file of ``answers``, requests that have one there are not sent.
    """

    def __init__(
        self,
        address: EndpointAddress,
        *,
        concurrency: int,
        request_timeout: float,
        answers: Path | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        address.url_of("")
        address.key()
        self.name = address.model
        self.tokenizer = None
        self.refusal: str | None = None
        self.limit = AdaptiveLimit(concurrency)
        self.seconds = request_timeout
        self.client = ChatClient(address)
        self.answers = RecordedAnswers(answers) if answers else None
        self.now, self.sleep = now, sleep

    def for_episode(self) -> "EpisodeEndpoint":
        return EpisodeEndpoint(self)

    async def close(self) -> None:
        """Close the file of answers; connections end with the event loop."""
        if self.answers is not None:
            self.answers.close()

    def refuse(self, fault: ChatFault) -> None:
        address = self.client.address
        if fault.status == HTTPStatus.UNAUTHORIZED:
            remedy = f" Put its key into {address.key_variable}."
        elif fault.status == HTTPStatus.NOT_FOUND:
            remedy = f" Is there a model {self.name!r}, and does the address end before /chat/completions?"
        else:
            remedy = ""
        self.refusal = f"{address.url_of('')} refuses requests: {fault}.{remedy}"


async def only_model(url: str, key_variable: str = KEY_VARIABLE) -> str:
    address = EndpointAddress(url, "", key_variable)
    base = address.url_of("")
    try:
        answer = await address.request("GET", "/models", _LIST_SECONDS)
    except (RequestFailed, ValueError) as error:
        is_late = isinstance(error.__cause__, TimeoutError)
        reason = f"no answer in {_LIST_SECONDS:.0f} seconds" if is_late else str(error)
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

    ``faults`` also counts, as ``no NAME``, what was first sent and then left out because the endpoint does not take it.
    """

    def __init__(self, endpoint: ChatEndpoint):
        self._endpoint = endpoint
        self._given: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
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
        endpoint = self._endpoint
        body = {
            "model": endpoint.name,
            "messages": self._sent(messages),
            **_sampling(sampling),
            "max_tokens": max_tokens,
        }
        if tools:
            body["tools"] = list(tools)
            if not use_tools:
                body["tool_choice"] = "none"
        recorded = endpoint.answers.find(body) if endpoint.answers else None
        answer = recorded or await self._asked(body)
        if endpoint.answers and not recorded:
            endpoint.answers.keep(body, answer)
        self._given[_key(Message("assistant", answer.content, answer.tool_calls))].append(answer.message)
        return answer

    async def _asked(self, body: Mapping[str, Any]) -> ChatAnswer:
        endpoint = self._endpoint
        outage = Outage(MAX_OUTAGE_SECONDS, _MAX_PAUSE, endpoint.now)
        while True:
            began = await endpoint.limit.acquire()
            known = set(endpoint.client.not_taken)
            try:
                if endpoint.refusal is not None:
                    raise EpisodeFailure(endpoint.refusal)
                answer = await endpoint.client.complete(body, endpoint.seconds)
                endpoint.limit.answered()
                self.faults.update(f"no {name}" for name in endpoint.client.not_taken - known)
                return answer
            except ChatFault as fault:
                if fault.scope != "passing":
                    raise self._failure(fault, body) from fault
                self.faults[fault.kind] += 1
                if fault.is_overload:
                    endpoint.limit.refused(began, fault.retry_after)
                pause = outage.pause(fault.retry_after)
                if pause is None:
                    raise EpisodeFailure(
                        f"the endpoint gave no answer for {outage.seconds:.0f} seconds: {fault}"
                    ) from fault
            finally:
                endpoint.limit.release()
            await endpoint.sleep(pause)

    def _sent(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as they are sent: the endpoint's own as it gave them, the n-th of equal ones as the n-th."""
        counts: Counter[Any] = Counter()
        sent = []
        for message in messages:
            given = self._given.get(key := _key(message)) if message.role == "assistant" else None
            if given:
                sent.append(message_for(given[min(counts[key], len(given) - 1)], message))
                counts[key] += 1
            else:
                sent.append(message.for_chat(with_images=True))
        return sent

    def _failure(self, fault: ChatFault, body: Mapping[str, Any]) -> Exception:
        if fault.scope == "endpoint":
            self._endpoint.refuse(fault)
            return EpisodeFailure(str(self._endpoint.refusal))
        if fault.scope == "filtered":
            return FilterRefused(f"a content filter of the endpoint refused the request: {fault}")
        # A first prompt with its answer that does not fit is the recipe's fault, not the agent's.
        if fault.scope == "too_long" and any(message["role"] == "assistant" for message in body["messages"]):
            return ContextExceeded(f"the conversation is too long for the model: {fault}")
        is_long = fault.scope == "too_long"
        hint = " (rollout.max_response_tokens says how many tokens it is asked for)" if is_long else ""
        return EpisodeFailure(f"the endpoint refused the request: {fault}{hint}")


def _key(message: Message) -> Any:
    return message.key, tuple(call.call_id for call in message.tool_calls)


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


class _RecordedAnswer(msgspec.Struct):
    request: str
    answer: ChatAnswer


class RecordedAnswers:
    """Answers by their requests, in a file, so that work that was cut off asks nothing again that was answered.

    A request that failed is not kept, and is sent again.
    """

    def __init__(self, path: Path):
        lines, _ = decoded_lines(path, msgspec.json.Decoder(_RecordedAnswer).decode)
        self._answers = {line.request: line.answer for line in lines}
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("ab")
        if self._file.tell():
            self._file.write(b"\n")  # ends the line in which an earlier process was killed

    def find(self, request: Mapping[str, Any]) -> ChatAnswer | None:
        return self._answers.get(_digest(request))

    def keep(self, request: Mapping[str, Any], answer: ChatAnswer) -> None:
        line = _RecordedAnswer(_digest(request), answer)
        self._file.write(self._encoder.encode(line) + b"\n")
        self._file.flush()
        self._answers[line.request] = answer

    def close(self) -> None:
        self._file.close()


def _digest(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
