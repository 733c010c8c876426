"""OpenAI's chat completions: POST /v1/chat/completions. Streams hold the whole, sampled before the first event."""

import ast
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import fields, output_format, sampling, tools
from aworld_train.rollout.model_gateway.contents import content
from aworld_train.rollout.model_gateway.dialect import (
    EMPTY,
    Dialect,
    ParsedRequest,
    Surroundings,
    event,
    new_id,
    token_logprobs,
)
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.model_gateway.history import History
from aworld_train.rollout.response_constraints import RequestRules, ResponseConstraints

_READ = frozenset(
    {
        *("chat_template_kwargs", "function_call", "functions", "logprobs", "max_completion_tokens"),
        *("max_tokens", "messages", "model", "n", "parallel_tool_calls", "response_format", "stop"),
        *("stream", "stream_options", "temperature", "tool_choice", "tools", "top_k"),
        *("top_logprobs", "top_p"),
    }
)
_MAX_CHOICES = 128  # as at OpenAI
# As smolagents 1.26 sends turns back.
_WRITTEN_CALLS, _INTERPRETER = "Calling tools:\n[", "python_interpreter"
_MAX_WRITTEN_CHARS = 200_000
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def read(body: Json, last: ParsedRequest | None = None, around: Surroundings = EMPTY) -> ParsedRequest:
    sampling.refuse_changes(body, _READ)
    sampling.refuse_other_template_options(body, around.rules)
    fields.text(body, "model")
    for legacy in ("functions", "function_call"):
        if body.get(legacy) not in (None, [], "none"):
            raise fields.unsupported(legacy, "superseded by OpenAI; offer `tools`")
    offered = tools.offered(body, last.tools if last else None, _tool, ("function",), around.rules)
    choice = tools.choice(body.get("tool_choice"), offered.functions, around.rules)
    options = fields.as_object(body.get("stream_options") or {}, "stream_options")
    sent = fields.array(body, "messages")
    request = ChatRequest(
        _messages(sent, last, around.rules),
        offered.functions,
        use_tools=choice.may_call,
        max_tokens=_max_tokens(body),
        stop=sampling.stop_texts(body, "stop"),
        logprobs=fields.flag(body, "logprobs"),
        top_logprobs=_top_logprobs(body, around.rules),
        constraints=ResponseConstraints(
            choice.must_call,
            choice.tools,
            one_call_wanted(body, offered.functions, around.rules),
            output_format.wanted(body.get("response_format"), "response_format", around.rules),
        ),
        choices=choices(body),
        **sampling.requested_sampling(body),
    )
    return ParsedRequest(
        request,
        stream=fields.flag(body, "stream"),
        usage=fields.flag(options, "include_usage"),
        sent=sent,
        tools=offered,
    )


def one_call_wanted(body: Json, functions: Sequence[Json], rules: RequestRules) -> bool:
    name = "parallel_tool_calls"
    return body.get(name) is not None and tools.one_call(not fields.flag(body, name), name, functions, rules)


def _top_logprobs(body: Json, rules: RequestRules) -> int:
    count = sampling.top_logprobs(body, rules)
    if count and not fields.flag(body, "logprobs"):
        raise fields.unsupported("top_logprobs", "it takes `logprobs: true` beside it")
    return count


def choices(body: Json) -> int:
    count = fields.integer(body, "n", min_value=1) or 1
    if count > _MAX_CHOICES:
        raise fields.wrong(count, "n", f"an integer from 1 to {_MAX_CHOICES}")
    return count


def _messages(sent: Sequence[Any], last: ParsedRequest | None, rules: RequestRules) -> tuple[Message, ...]:
    known = _common_prefix(sent, last.sent) if last else 0
    history = History(last.request.messages[:known] if last else ())
    for index in range(known, len(sent)):
        where = f"messages[{index}]"
        _add(history, fields.as_object(sent[index], where), where, rules)
    return history.complete("messages")


def _common_prefix(sent: Sequence[Any], before: Sequence[Any]) -> int:
    for index, (sent_message, earlier) in enumerate(zip(sent, before, strict=False)):
        if sent_message is not earlier and sent_message != earlier:
            return index
    return min(len(sent), len(before))


def _add(history: History, item: Json, where: str, rules: RequestRules) -> None:
    role = fields.as_text(item.get("role"), f"{where}.role")
    if role == "user":
        text, images = content(item.get("content"), f"{where}.content", rules)
        history.add(Message("user", text, images=images))
    elif role in ("system", "developer"):
        history.add(Message("system", fields.joined_text(item.get("content"), f"{where}.content")))
    elif role == "assistant":
        history.add(_assistant(item, where))
    elif role in ("tool", "function"):
        history.add_result(
            fields.text(item, "tool_call_id", f"{where}.tool_call_id"),
            content(item.get("content"), f"{where}.content", rules, of_tool=True),
            fields.text(item, "name", f"{where}.name"),
        )
    else:
        raise fields.invalid(f"{where}.role", "must be system, developer, user, assistant, tool or function")


def _assistant(item: Json, where: str) -> Message:
    written = item.get("content")
    calls = [
        _call(call, f"{where}.tool_calls[{index}]")
        for index, call in enumerate(fields.array(item, "tool_calls", f"{where}.tool_calls"))
    ]
    if item.get("function_call") is not None:
        calls.append(_named_call(item, "function_call", where))
    text = "" if written is None else fields.joined_text(written, f"{where}.content")
    if not calls:
        text, written_calls = split_calls(text)
        calls += written_calls
    return Message(
        "assistant",
        text,
        tuple(calls),
        # vLLM calls it `reasoning` since 0.11, and `reasoning_content` before, as DeepSeek does.
        reasoning=fields.text(item, "reasoning_content", f"{where}.reasoning_content")
        or fields.text(item, "reasoning", f"{where}.reasoning"),
    )


def split_calls(content: str) -> tuple[str, tuple[ToolCall, ...]]:
    """The text of a turn, and the tool calls that smolagents writes behind it instead of sending ``tool_calls``.

    Read as calls again, the turn is the one that was sampled. A code agent's call of the Python interpreter holds the
    code that is in the text already, so it is not a call of the model.
    """
    if _WRITTEN_CALLS not in content or len(content) > _MAX_WRITTEN_CHARS:
        return content, ()
    text, _, written = content.rpartition(_WRITTEN_CALLS)
    try:
        calls = [_written_call(item) for item in ast.literal_eval("[" + written)]
    except (ValueError, SyntaxError, TypeError, KeyError, AttributeError, MemoryError, RecursionError):
        return content, ()
    return text.rstrip("\n"), tuple(call for call in calls if call is not None)


def _written_call(item: Any) -> ToolCall | None:
    function = item["function"]
    name, arguments = function["name"], function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    elif name == _INTERPRETER:
        return None
    return ToolCall(name, arguments, str(item.get("id") or ""))


def _call(call: Any, where: str) -> ToolCall:
    if fields.as_object(call, where).get("type", "function") != "function":
        raise fields.unsupported(f"{where}.type", "only functions are possible")
    return _named_call(call, "function", where)


def _named_call(item: Json, member: str, where: str) -> ToolCall:
    function = fields.as_object(item.get(member), f"{where}.{member}")
    return ToolCall(
        fields.as_name(function.get("name"), f"{where}.{member}.name"),
        fields.as_text(function.get("arguments"), f"{where}.{member}.arguments"),
        fields.text(item, "id", f"{where}.id") if member == "function" else "",
    )


def _tool(tool: Any, where: str) -> Json:
    function = fields.as_object(tool, where).get("function")
    return tools.function(fields.as_object(function, f"{where}.function"), f"{where}.function")


def _max_tokens(body: Json) -> int | None:
    limits = (fields.integer(body, name, min_value=1) for name in ("max_tokens", "max_completion_tokens"))
    return min((limit for limit in limits if limit is not None), default=None)


def answer(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Json:
    choices = [_choice(index, completion, parsed) for index, completion in enumerate(completions)]
    return {**_head("chat.completion", model), "choices": choices, "usage": usage(completions)}


def _choice(index: int, completion: Completion, parsed: ParsedRequest) -> Json:
    message: Json = {"role": "assistant", "content": completion.content, "refusal": None}
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["content"] = completion.content or None
        message["tool_calls"] = [call.for_chat() for call in completion.tool_calls]
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs(completion, parsed),
        "finish_reason": _finish_reason(completion),
    }


def _finish_reason(completion: Completion) -> str:
    return "stop" if completion.finish_reason == "refusal" else completion.finish_reason


def events(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Iterator[bytes]:
    head = _head("chat.completion.chunk", model)
    if parsed.usage:
        head["usage"] = None
    for index, completion in enumerate(completions):
        for delta in _deltas(completion):
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            yield event({**head, "choices": [choice]})
        last = {
            "index": index,
            "delta": {},
            "logprobs": _logprobs(completion, parsed),
            "finish_reason": _finish_reason(completion),
        }
        yield event({**head, "choices": [last]})
    if parsed.usage:
        yield event({**head, "choices": [], "usage": usage(completions)})
    yield b"data: [DONE]\n\n"


def _deltas(completion: Completion) -> Iterator[Json]:
    yield {"role": "assistant", "content": None if completion.tool_calls else ""}
    if completion.reasoning:
        yield {"reasoning_content": completion.reasoning}
    if completion.content:
        yield {"content": completion.content}
    for index, call in enumerate(completion.tool_calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}


def _head(kind: str, model: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": model}


def _logprobs(completion: Completion, parsed: ParsedRequest) -> Json | None:
    found = token_logprobs(completion) if parsed.request.logprobs else []
    return {"content": found, "refusal": None} if found else None


def usage(completions: Sequence[Completion]) -> Json:
    """The number of tokens; a prompt counts once, whatever the number of choices."""
    prompt_tokens = completions[0].prompt_tokens
    sampled = sum(completion.token_count for completion in completions)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": prompt_tokens + sampled,
    }


def error(refused: RequestRefused) -> Json:
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
