"""OpenAI's responses: POST /v1/responses, where a conversation is a list of items.

A request brings its whole history, or names an earlier answer of its agent in the same episode with
``previous_response_id``: then the messages up to that answer come before its own, without the earlier instructions, as
at OpenAI. One turn of the assistant is several items (reasoning, text, each tool call); they are joined, so that the
turn is one message as it was sampled. Streams hold the whole answer, sampled before the first event.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import chat, fields, output_format, sampling, tools
from aworld_train.rollout.model_gateway.contents import Content, content
from aworld_train.rollout.model_gateway.dialect import (
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
        *("background", "chat_template_kwargs", "conversation", "include", "input", "instructions"),
        *("max_output_tokens", "model", "parallel_tool_calls", "previous_response_id", "prompt"),
        *("stream", "temperature", "text", "tool_choice", "tools", "top_k", "top_logprobs", "top_p"),
    }
)
_NOT_STORED = (
    "no such thing is stored; name an earlier answer as `previous_response_id`, or send everything as `input`"
)
_NO_ITEMS = "items are not stored; send the item itself, or name its answer as `previous_response_id`"
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_LOGPROBS = "message.output_text.logprobs"


def read(body: Json, last: ParsedRequest | None, around: Surroundings) -> ParsedRequest:
    sampling.refuse_changes(body, _READ)
    sampling.refuse_other_template_options(body, around.rules)
    fields.text(body, "model")
    for stored in ("conversation", "prompt"):
        if body.get(stored) is not None:
            raise fields.unsupported(stored, _NOT_STORED)
    if fields.flag(body, "background"):
        raise fields.unsupported("background", "an answer comes with its request alone; wait for it")
    form = fields.as_object(body.get("text") or {}, "text").get("format")
    offered = tools.offered(body, last.tools if last else None, _tool, ("function",), around.rules)
    choice = tools.choice(body.get("tool_choice"), offered.functions, around.rules)
    one_call = chat.one_call_wanted(body, offered.functions, around.rules)
    output = output_format.wanted(form, "text.format", around.rules)
    instructions = fields.text(body, "instructions")
    messages = _messages(body, around)
    system = (Message("system", instructions),) if instructions else ()
    request = ChatRequest(
        (*system, *messages),
        offered.functions,
        use_tools=choice.may_call,
        max_tokens=fields.integer(body, "max_output_tokens", min_value=1),
        logprobs=_LOGPROBS in fields.array(body, "include"),
        top_logprobs=sampling.top_logprobs(body, around.rules),
        constraints=ResponseConstraints(choice.must_call, choice.tools, one_call, output),
        **sampling.requested_sampling(body),
    )
    return ParsedRequest(
        request,
        stream=fields.flag(body, "stream"),
        tools=offered,
        response_id=new_id("resp_"),
        previous_id=body.get("previous_response_id"),
        carried=messages,
    )


def _tool(tool: Any, where: str) -> Json:
    fields.as_text(fields.as_object(tool, where).get("type"), f"{where}.type")
    return tools.function(tool, where)


def _messages(body: Json, around: Surroundings) -> tuple[Message, ...]:
    history = History(_earlier(fields.text(body, "previous_response_id"), around.responses))
    items = body.get("input")
    if type(items) is str:
        history.add(Message("user", items))
    elif type(items) is list:
        reader = _Items(history, around.rules)
        for index, item in enumerate(items):
            where = f"input[{index}]"
            reader.read(fields.as_object(item, where), where)
    elif items is not None:
        raise fields.wrong(items, "input", "a string or an array of items")
    return history.complete("input")


def _earlier(previous_id: str, responses: Mapping[str, Sequence[Message]]) -> Sequence[Message]:
    if previous_id and previous_id not in responses:
        raise RequestRefused(
            f"previous_response_id: this agent has had no answer {previous_id[:100]!r} in this episode",
            code="previous_response_not_found",
            parameter="previous_response_id",
        )
    return responses[previous_id] if previous_id else ()


class _Items:
    """Reads items in order and joins those of one assistant turn."""

    def __init__(self, history: History, rules: RequestRules) -> None:
        self._history = history
        self._rules = rules
        self._turn = False  # the last message is an assistant turn that calls may be added to
        self._thinking_only = False  # that turn holds only reasoning so far

    def read(self, item: Json, where: str) -> None:
        kind = item.get("type")
        if kind == "message" or (kind is None and "role" in item):
            self._message(item, where)
        elif kind == "function_call":
            self._call(item, where)
        elif kind == "function_call_output":
            output = content(item.get("output"), f"{where}.output", self._rules, of_tool=True)
            self._history.add_result(fields.text(item, "call_id", f"{where}.call_id"), output)
            self._turn = self._thinking_only = False
        elif kind == "reasoning":
            self._history.add(Message("assistant", "", reasoning=_reasoning_text(item, where)))
            self._turn = self._thinking_only = True
        elif kind == "item_reference":
            raise fields.unsupported(where, _NO_ITEMS)
        else:
            fields.as_text(kind, f"{where}.type")
            raise fields.unsupported(f"{where}.type", "no such item reaches the model")

    def _message(self, item: Json, where: str) -> None:
        role_name = fields.as_text(item.get("role"), f"{where}.role")
        role = "system" if role_name == "developer" else role_name
        if role not in ("system", "user", "assistant"):
            raise fields.invalid(f"{where}.role", "must be system, developer, user or assistant")
        written, name = item.get("content"), f"{where}.content"
        text, images = (
            content(written, name, self._rules)
            if role == "user"
            else Content(fields.joined_text(written, name))
        )
        reasoning = ""
        if role == "assistant" and self._thinking_only:
            reasoning = self._history.messages.pop().reasoning
        self._history.add(Message(role, text, reasoning=reasoning, images=images))
        self._turn, self._thinking_only = role == "assistant", False

    def _call(self, item: Json, where: str) -> None:
        namespace = fields.text(item, "namespace", f"{where}.namespace")
        call = ToolCall(
            tools.name_in(namespace, fields.as_name(item.get("name"), f"{where}.name")),
            fields.as_text(item.get("arguments"), f"{where}.arguments"),
            fields.text(item, "call_id", f"{where}.call_id"),
        )
        if not self._turn:
            self._history.add(Message("assistant", ""))
        self._history.add_call(call)
        self._turn, self._thinking_only = True, False


def _reasoning_text(item: Json, where: str) -> str:
    for member in ("content", "summary"):
        parts = fields.array(item, member, f"{where}.{member}")
        texts = [
            fields.as_text(
                fields.as_object(part, f"{where}.{member}[{index}]").get("text"),
                f"{where}.{member}[{index}].text",
            )
            for index, part in enumerate(parts)
        ]
        if texts:
            return "\n".join(texts)
    return ""


def answer(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Json:
    (completion,) = completions
    return _finished(_response(parsed, model), completion, _items(completion, parsed))


def events(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Iterator[bytes]:
    (completion,) = completions
    for index, data in enumerate(_events(completion, parsed, model)):
        yield event({**data, "sequence_number": index}, data["type"])


def _events(completion: Completion, parsed: ParsedRequest, model: str) -> Iterator[Json]:
    response = _response(parsed, model)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    items = _items(completion, parsed)
    for index, item in enumerate(items):
        yield from _item_events(item, index)
    finished = _finished(response, completion, items)
    yield {"type": f"response.{finished['status']}", "response": finished}


def _item_events(item: Json, index: int) -> Iterator[Json]:
    position = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        empty = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        kind = "response.function_call_arguments"
        yield {"type": f"{kind}.delta", **position, "delta": item["arguments"]}
        yield {"type": f"{kind}.done", **position, "name": item["name"], "arguments": item["arguments"]}
    else:
        empty = {**item, "status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        yield from _part_events(item["content"][0], {**position, "content_index": 0})
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(part: Json, position: Json) -> Iterator[Json]:
    kind = f"response.{part['type']}"
    logprobs = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
    empty = {**part, "text": ""} | ({"logprobs": []} if logprobs else {})
    yield {"type": "response.content_part.added", **position, "part": empty}
    if part["text"]:
        yield {"type": f"{kind}.delta", **position, **logprobs, "delta": part["text"]}
    yield {"type": f"{kind}.done", **position, **logprobs, "text": part["text"]}
    yield {"type": "response.content_part.done", **position, "part": part}


def _response(parsed: ParsedRequest, model: str) -> Json:
    """A response without an answer yet; it repeats the short parameters of the request."""
    request = parsed.request
    return {
        "id": parsed.response_id or new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": parsed.previous_id,
        "store": True,
        "temperature": request.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto" if request.use_tools else "none",
        "tools": [],
        "top_p": request.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _finished(response: Json, completion: Completion, items: list[Json]) -> Json:
    reason = _INCOMPLETE.get(completion.finish_reason)
    sampled = completion.token_count
    return {
        **response,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items,
        "usage": {
            "input_tokens": completion.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": completion.prompt_tokens + sampled,
        },
    }


def _items(completion: Completion, parsed: ParsedRequest) -> list[Json]:
    """The items of an answer; a message at least, without a call."""
    status = "incomplete" if completion.finish_reason in _INCOMPLETE else "completed"
    items: list[Json] = []
    if completion.reasoning:
        reasoning = {"type": "reasoning_text", "text": completion.reasoning}
        items.append(
            {
                "id": new_id("rs_"),
                "type": "reasoning",
                "summary": [],
                "content": [reasoning],
                "status": status,
            }
        )
    if completion.content or not completion.tool_calls:
        logprobs = token_logprobs(completion) if parsed.request.logprobs else []
        text = {"type": "output_text", "text": completion.content, "annotations": [], "logprobs": logprobs}
        items.append(
            {
                "id": new_id("msg_"),
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [text],
            }
        )
    items += [
        {
            "id": new_id("fc_"),
            "type": "function_call",
            "call_id": call.call_id,
            **_own_name(call.name, parsed),
            "arguments": call.arguments,
            "status": status,
        }
        for call in completion.tool_calls
    ]
    return items


def _own_name(name: str, parsed: ParsedRequest) -> Json:
    namespaces = parsed.tools.namespaces if parsed.tools else {}
    namespace, own_name = namespaces.get(name, ("", name))
    return {"name": own_name} | ({"namespace": namespace} if namespace else {})


def error_event(refused: RequestRefused) -> bytes:
    body = chat.error(refused)
    data = {"type": "error", **body, **body["error"], "sequence_number": 0}
    return event(data | {"type": "error"}, "error")


DIALECT = Dialect("input", read, answer, events, chat.error, error_event)
