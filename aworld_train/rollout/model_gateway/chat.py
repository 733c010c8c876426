"""OpenAI's chat completions: POST /v1/chat/completions.

Streams hold the whole answer, sampled before the first event: role, reasoning, text, each call's head and arguments,
the reason it ended, and, where ``stream_options.include_usage`` asks for it, the number of tokens.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aworld_train.rollout.messages import ChatRequest, Completion, Message, RequestRefused, Role, ToolCall
from aworld_train.rollout.model_gateway import fields, sampling, tools
from aworld_train.rollout.model_gateway.dialect import Dialect, ParsedRequest, event, new_id, token_logprobs
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.model_gateway.history import History

_READ = frozenset(
    {
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "parallel_tool_calls",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user"}
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def read(body: Json, last: ParsedRequest | None = None) -> ParsedRequest:
    """A request's body, read; ``last`` is the agent's last request, where there was one."""
    sampling.refuse_changes(body, _READ)
    fields.text(body, "model")
    for legacy in ("functions", "function_call"):
        if body.get(legacy) not in (None, [], "none"):
            raise fields.unsupported(legacy, "superseded by OpenAI; offer `tools`")
    offered = tools.offered(body, last.tools if last else None, _tool)
    if body.get("parallel_tool_calls") is not None:
        one_at_a_time = not fields.flag(body, "parallel_tool_calls")
        tools.refuse_one_at_a_time(one_at_a_time, "parallel_tool_calls", bool(offered.functions))
    options = fields.as_object(body.get("stream_options") or {}, "stream_options")
    sent = fields.array(body, "messages")
    request = ChatRequest(
        _messages(sent, last),
        offered.functions,
        use_tools=tools.may_use(body.get("tool_choice")),
        max_tokens=_max_tokens(body),
        stop=sampling.stop_texts(body, "stop"),
        logprobs=fields.flag(body, "logprobs"),
        **sampling.requested_sampling(body),
    )
    return ParsedRequest(
        request,
        stream=fields.flag(body, "stream"),
        usage=fields.flag(options, "include_usage"),
        sent=sent,
        tools=offered,
    )


def _messages(sent: Sequence[Any], last: ParsedRequest | None) -> tuple[Message, ...]:
    known = _common(sent, last.sent) if last else 0
    history = History(last.request.messages[:known] if last else ())
    for at in range(known, len(sent)):
        where = f"messages[{at}]"
        _add(history, fields.as_object(sent[at], where), where)
    return history.complete("messages")


def _common(sent: Sequence[Any], before: Sequence[Any]) -> int:
    """How many messages are at the beginning of both. What is read of one is text, which is equal or is not."""
    for at, (new, old) in enumerate(zip(sent, before, strict=False)):
        if new is not old and new != old:
            return at
    return min(len(sent), len(before))


def _add(history: History, plain: Json, where: str) -> None:
    role = fields.as_text(plain.get("role"), f"{where}.role")
    if role in _ROLES:
        history.add(Message(_ROLES[role], fields.joined_text(plain.get("content"), f"{where}.content")))
    elif role == "assistant":
        history.add(_assistant(plain, where))
    elif role in ("tool", "function"):
        history.add_result(
            fields.text(plain, "tool_call_id", f"{where}.tool_call_id"),
            fields.joined_text(plain.get("content"), f"{where}.content"),
            fields.text(plain, "name", f"{where}.name"),
        )
    else:
        wanted = "system, developer, user, assistant, tool or function"
        raise RequestRefused(
            f"{where}.role must be {wanted}", code="invalid_value", parameter=f"{where}.role"
        )


def _assistant(plain: Json, where: str) -> Message:
    content = plain.get("content")
    calls = [
        _call(one, f"{where}.tool_calls[{at}]")
        for at, one in enumerate(fields.array(plain, "tool_calls", f"{where}.tool_calls"))
    ]
    if plain.get("function_call") is not None:
        calls.append(_named_call(plain, "function_call", where))
    return Message(
        "assistant",
        "" if content is None else fields.joined_text(content, f"{where}.content"),
        tuple(calls),
        # vLLM calls it `reasoning` since 0.11, and `reasoning_content` before, as DeepSeek does.
        reasoning=fields.text(plain, "reasoning_content", f"{where}.reasoning_content")
        or fields.text(plain, "reasoning", f"{where}.reasoning"),
    )


def _call(plain: Any, where: str) -> ToolCall:
    _refuse_other_types(fields.as_object(plain, where), where)
    return _named_call(plain, "function", where)


def _named_call(plain: Json, member: str, where: str) -> ToolCall:
    function = fields.as_object(plain.get(member), f"{where}.{member}")
    return ToolCall(
        fields.as_name(function.get("name"), f"{where}.{member}.name"),
        fields.as_text(function.get("arguments"), f"{where}.{member}.arguments"),
        fields.text(plain, "id", f"{where}.id") if member == "function" else "",
    )


def _tool(plain: Any, where: str) -> Json:
    _refuse_other_types(fields.as_object(plain, where), where)
    return tools.function(fields.as_object(plain.get("function"), f"{where}.function"), f"{where}.function")


def _refuse_other_types(plain: Json, where: str) -> None:
    if plain.get("type", "function") != "function":
        raise fields.unsupported(f"{where}.type", "only functions are possible")


def _max_tokens(body: Json) -> int | None:
    limits = (fields.integer(body, name, least=1) for name in ("max_tokens", "max_completion_tokens"))
    return min((one for one in limits if one is not None), default=None)


def answer(completion: Completion, asked: ParsedRequest, model: str) -> Json:
    """The body of an answer."""
    message: Json = {"role": "assistant", "content": completion.content, "refusal": None}
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["content"] = completion.content or None
        message["tool_calls"] = [
            {
                "id": one.call_id,
                "type": "function",
                "function": {"name": one.name, "arguments": one.arguments},
            }
            for one in completion.tool_calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(completion, asked),
        "finish_reason": completion.finish_reason,
    }
    return {**_head("chat.completion", model), "choices": [choice], "usage": _usage(completion)}


def events(completion: Completion, asked: ParsedRequest, model: str) -> Iterator[bytes]:
    """An answer as events."""
    head = _head("chat.completion.chunk", model)
    if asked.usage:
        head["usage"] = None
    for delta in _deltas(completion):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        yield event({**head, "choices": [choice]})
    last = {
        "index": 0,
        "delta": {},
        "logprobs": _logprobs(completion, asked),
        "finish_reason": completion.finish_reason,
    }
    yield event({**head, "choices": [last]})
    if asked.usage:
        yield event({**head, "choices": [], "usage": _usage(completion)})
    yield b"data: [DONE]\n\n"


def _deltas(completion: Completion) -> Iterator[Json]:
    yield {"role": "assistant", "content": None if completion.tool_calls else ""}
    if completion.reasoning:
        yield {"reasoning_content": completion.reasoning}
    if completion.content:
        yield {"content": completion.content}
    for at, call in enumerate(completion.tool_calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": at, "id": call.call_id, "type": "function", "function": function}]}
        yield {"tool_calls": [{"index": at, "function": {"arguments": call.arguments}}]}


def _head(kind: str, model: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": model}


def _logprobs(completion: Completion, asked: ParsedRequest) -> Json | None:
    found = token_logprobs(completion) if asked.request.logprobs else []
    return {"content": found, "refusal": None} if found else None


def _usage(completion: Completion) -> Json:
    sampled = len(completion.tokens)
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": completion.prompt_tokens + sampled,
    }


def error(refused: RequestRefused) -> Json:
    """The body of a refusal."""
    default = "server_error" if refused.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(refused),
            "type": _ERROR_TYPES.get(refused.status, default),
            "param": refused.parameter or None,
            "code": refused.code,
        }
    }


def error_event(refused: RequestRefused) -> bytes:
    """A refusal in a stream that has begun: the official clients raise on data that has an ``error``."""
    return event(error(refused))


DIALECT = Dialect("messages", read, answer, events, error, error_event)
