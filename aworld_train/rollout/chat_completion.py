"""Reads what chat endpoints send: completions and errors as servers really write them, by tables.

Thoughts are never part of the answer's text, and nothing but a `ChatFault` is raised. Written after the API references
of OpenAI, Azure, Anthropic, Gemini, Mistral, DeepSeek, OpenRouter, Groq and Zhipu, and public reports of errors of
these and of vLLM, SGLang, llama.cpp, Ollama and TGI; `tests/unit/rollout/test_endpoint_matrix.py` has what each sends.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from aworld_train.episode.message import Message, content_text
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import Finish
from aworld_train.whole_text import whole_text

FaultKind = Literal["429", "5xx", "other_status", "timeout", "connection", "cut", "no_json", "no_completion"]
Scope = Literal["passing", "request", "too_long", "filtered", "endpoint"]
"""What a failure is about: it may pass; this request; its length; its texts, which a filter refuses; all requests."""

_MAX_QUOTED = 200  # characters of an error in a message
_MAX_COUNT = 1_000_000_000  # of tokens in a call: more is an error of the server
_REASONS: Mapping[Finish | Literal["malformed", "again"], str] = {
    "stop": "stop eos eos_token end_turn stop_sequence tool_calls tool_use function_call complete completed",
    "length": "length max_tokens model_length max_output_tokens model_context_window_exceeded",
    "content_filter": "content_filter content_filtered safety recitation blocklist prohibited_content spii sensitive "
    "guardrail_intervened",
    "refusal": "refusal",
    "malformed": "malformed_function_call unexpected_tool_call too_many_tool_calls",
    "again": "abort error insufficient_system_resource network_error load unload cancelled timeout",
}
"""Finish reasons by what they mean; any other one ends a whole answer, if there is one."""
_FINISHES = {reason: meaning for meaning, reasons in _REASONS.items() for reason in reasons.split()}

# Too early, too many, or something that went wrong on the server's side (RFC 9110, RFC 8470, RFC 6585).
_PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_TOO_MANY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, 529}  # 529: Anthropic's overload
_OF_ENDPOINT = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.PAYMENT_REQUIRED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.GONE,
}
_REFUSING = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
# Codes are the server's own words; messages may quote the request, and so are only compared at their beginning, where
# a word of the request could otherwise end a run.
_ENDPOINT_CODES = re.compile(
    r"insufficient_quota|billing|account_deactivated|invalid_?api_?key|api_key_invalid|authentication_error"
    r"|permission_error|model_not_found|deploymentnotfound|invalid_model|perday"
)
_ENDPOINT_MESSAGES = re.compile(
    r"(?:your credit balance is too low|you have reached your specified api usage limits"
    r"|insufficient (?:balance|credits)"
    r"|api key not valid|(?:incorrect|invalid) api key|model not exist|invalid model\b"
    r"|(?:the )?model [`'\"]?[\w./:@-]{0,200}[`'\"]? (?:does not exist|not found)|[\w./:@-]{0,200} is not a valid model"
    r"|[\w./:@-]{0,200} does not support tools|\"auto\" tool choice requires)"
)
_FILTER_CODES = re.compile(
    r"content_?filter|content_policy|responsibleaipolicy|data_inspection_failed|invalid_prompt|prohibited_content"
    r"|moderation|flagged_input"
)
_FILTER_MESSAGES = re.compile(
    r"content exists risk|the response was filtered|.{0,80}content management policy"
)
_LENGTH_CODES = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|string_above_max_length"
)
_LENGTH_MESSAGES = re.compile(
    r"context[ _-](?:length|window|size)|maximum context|too long|context limit|context_length_exceeded"
    # The last one: larger than what a minute allows, so that it never succeeds (OpenAI, Groq).
    r"|`inputs` tokens \+ `max_new_tokens`|token count .{0,40}exceeds the maximum|^request too large"
)
# A parameter or a message's key that the server names in such an error is not taken, or not with this value.
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|does ?n[o']t support|not permitted|not allowed|unknown|unrecognized|unexpected"
    r"|deprecated|only the default|cannot both|must be strictly|please remove|extra (?:inputs|fields)|no such parameter"
)
_NAMES = re.compile(r"[`'\"](?:[\w\[\]]+\.)*(\w+)[`'\"]|\b(\w+_\w+|temperature)\b")
_LIST_OF_TAKEN = re.compile(r"expected one of|must be one of|supported (?:values|parameters) are")
_RETRY_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


@dataclass(frozen=True)
class ChatAnswer:
    """``content_filter``: a filter of the endpoint stopped it; ``refusal``: the model said that it refuses. Sampled
    tokens include thoughts; 0 if the endpoint does not count. It is ``malformed`` where a tool call cannot be read.
    """

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Finish
    prompt_tokens: int
    sampled_tokens: int
    malformed: bool = False
    message: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


class ChatFault(Exception):
    """A request to a chat endpoint came to no answer; the message is one line without the key.

    ``named`` are parameters, or keys of messages, that the endpoint does not take.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        scope: Scope = "passing",
        *,
        status: int | None = None,
        retry_after: float = 0.0,
        named: frozenset[str] = frozenset(),
    ):
        super().__init__(message)
        self.kind, self.scope, self.status = kind, scope, status
        self.retry_after, self.named = retry_after, named

    @property
    def is_overload(self) -> bool:
        return self.status in _TOO_MANY


def read_completion(data: Any) -> ChatAnswer:
    match data:
        case {"choices": [{"error": dict() as error}, *_]} | {"error": dict() | str() as error} if error:
            raise fault_of(_status_in(error), {"error": error}, json.dumps(error))
        case {"choices": [{"message": dict() as message, **choice}, *_], **rest}:
            pass
        case _:
            raise ChatFault("no_completion", "its answer is not a chat completion")
    calls = tuple(_calls(message))
    parts = _parts(message.get("content"))
    refusal = _refusal(message, parts)
    content = whole_text(content_text(parts)) or refusal
    reasoning = whole_text(_reasoning(message, parts))
    reason = str(choice.get("finish_reason") or "").lower()
    # Gemini writes a reason of its own after a colon.
    meaning = next((_FINISHES[word] for word in re.split(r"[:\s]+", reason)[::-1] if word in _FINISHES), None)
    if meaning == "again" or (reason and meaning is None and not (content or reasoning or calls)):
        raise ChatFault("no_completion", f"it gave the request up (finish_reason {reason[:40]!r})")
    finish: Finish = "refusal" if refusal else "tool_calls" if calls else "stop"
    if meaning in ("length", "content_filter", "refusal"):
        finish = meaning
    usage = rest.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return ChatAnswer(
        content,
        reasoning,
        calls,
        finish,
        _count(counts.get("prompt_tokens")),
        _count(counts.get("completion_tokens")),
        meaning == "malformed",
        message,
    )


def failed_generation(body: Any) -> ChatAnswer | None:
    """The answer of a model whose tool call the server could not read and sent back as an error (Groq); else None."""
    match body:
        case {"error": {"failed_generation": str(text)}}:
            return ChatAnswer(whole_text(text), "", (), "stop", 0, 0, malformed=True)
    return None


def fault_of(status: int, body: Any, text: str, retry_after: float = 0.0) -> ChatFault:
    """What an error means; ``body`` is None where it is not JSON, ``retry_after`` the seconds of the header."""
    error = _Error.read(body)
    kind: FaultKind = "other_status"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "429"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "5xx"
    return ChatFault(
        kind,
        f"HTTP {status} {(error.message or text)[:_MAX_QUOTED]!r}",
        _scope(status, error, retry_after),
        status=status,
        retry_after=retry_after or error.retry_delay,
        named=error.named if status in (*_REFUSING, HTTPStatus.NOT_IMPLEMENTED) else frozenset(),
    )


def message_for(given: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """A message as the endpoint gave it, with all keys that it may want back, and our identifiers of its calls."""
    own = message.for_chat()
    data = {key: value for key, value in given.items() if value is not None and key != "function_call"}
    if "tool_calls" in own:
        raw_calls = given.get("tool_calls") or [{} for _ in own["tool_calls"]]
        data["tool_calls"] = [
            {
                **raw,
                **call,
                "function": {
                    **call["function"],
                    **{k: v for k, v in raw.get("function", {}).items() if v is not None},
                },
            }
            for raw, call in zip(raw_calls, own["tool_calls"], strict=True)
        ]
    content = given.get("content")
    if content is None and "tool_calls" not in own:
        content = own["content"]
    return {**data, "role": "assistant", "content": content}


@dataclass(frozen=True)
class _Error:
    message: str
    codes: str
    named: frozenset[str]
    retry_delay: float

    @classmethod
    def read(cls, body: Any) -> "_Error":
        if isinstance(body, list):  # Gemini
            body = body[0] if body else None
        outer = body if isinstance(body, dict) else {}
        error = outer.get("error")
        inner = error if isinstance(error, dict) else {"message": error or outer.get("message"), **outer}
        details = outer.get("detail")  # FastAPI
        faults = [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
        message = str(
            inner.get("message") or "; ".join(str(each.get("msg")) for each in faults) or details or ""
        )
        named = {str(each["loc"][-1]) for each in faults if isinstance(each.get("loc"), list) and each["loc"]}
        is_untaken = _NOT_TAKEN.search(message.lower()) is not None
        if is_untaken:
            named |= {word for pair in _NAMES.findall(_LIST_OF_TAKEN.split(message)[0]) for word in pair}
        parameter = str(inner.get("param") or "").rpartition(".")[2]
        if is_untaken or not parameter.startswith("max_"):  # else another number of tokens is wanted
            named.add(parameter)
        codes = " ".join(_codes(inner)).lower()
        delay = _RETRY_DELAY.search(next(_values(inner, "retryDelay"), ""))
        return cls(message, codes, frozenset(named - {""}), float(delay[1]) if delay else 0.0)


def _scope(status: int, error: _Error, retry_after: float) -> Scope:
    message = error.message.lower()
    if _FILTER_CODES.search(error.codes) or (status in _REFUSING and _FILTER_MESSAGES.match(message)):
        return "filtered"
    if _LENGTH_CODES.search(error.codes) or (
        status in (*_REFUSING, HTTPStatus.TOO_MANY_REQUESTS) and _LENGTH_MESSAGES.search(message)
    ):
        return "too_long"
    if _ENDPOINT_CODES.search(error.codes) or _ENDPOINT_MESSAGES.match(message):
        return "endpoint"
    if status in _OF_ENDPOINT and not (status == HTTPStatus.PAYMENT_REQUIRED and retry_after):
        return "endpoint"
    is_passing = status in _PASSING or (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED
    )
    return "passing" if is_passing or retry_after else "request"


def _status_in(error: dict[str, Any] | str) -> int:
    """The status of an error that came with status 200: its own, as a code (OpenRouter), or a server's error."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_GATEWAY


def _codes(error: Mapping[str, Any]) -> Iterator[str]:
    for key in ("code", "type", "status", "error_type", "reason", "quotaId"):
        yield from _values(error, key)
    metadata = error.get("metadata")  # OpenRouter
    if isinstance(metadata, dict):
        yield from metadata


def _values(value: Any, key: str, depth: int = 4) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(text := value.get(key), str):
            yield text
        value = list(value.values())
    if isinstance(value, list) and depth:
        for each in value:
            yield from _values(each, key, depth - 1)


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCall]:
    calls = message.get("tool_calls") or []
    if not calls and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    if not isinstance(calls, list):
        raise ChatFault("no_completion", "its answer is not a chat completion")
    for number, call in enumerate(calls):
        match call:
            case {"function": {"name": str(name), **rest}}:
                call_id = call.get("id")
                is_id = isinstance(call_id, str) and call_id
                yield ToolCall(
                    name, _arguments(rest.get("arguments")), call_id if is_id else f"call_{number}"
                )
            case _:
                raise ChatFault("no_completion", "one of its tool calls has no name")


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return whole_text(value) if value.strip() else "{}"
    return "{}" if value is None else whole_text(json.dumps(value, ensure_ascii=False))


def _parts(content: Any) -> Sequence[Any]:
    match content:
        case None:
            return []
        case str() | dict():
            return [content]
        case list():
            return content
    raise ChatFault("no_completion", "its answer is not a chat completion")


def _refusal(message: Mapping[str, Any], parts: Sequence[Any]) -> str:
    texts = [message.get("refusal"), *(part.get("refusal") for part in parts if isinstance(part, dict))]
    return whole_text("".join(text for text in texts if isinstance(text, str)))


def _reasoning(message: Mapping[str, Any], parts: Sequence[Any]) -> str:
    thoughts = [part for part in parts if isinstance(part, dict) and not content_text([part])]
    return _text_in(message.get("reasoning_content") or message.get("reasoning") or thoughts)


def _text_in(value: Any) -> str:
    """The text of a thought: servers write it as a text, an object or a list of these."""
    match value:
        case str():
            return value
        case list():
            return "".join(map(_text_in, value))
        case dict():
            return next(
                (_text_in(value[key]) for key in ("text", "thinking", "summary", "content") if key in value),
                "",
            )
    return ""


def _count(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_number and 0 < value <= _MAX_COUNT else 0
