"""Anthropic's messages: POST /v1/messages.

Tool results in a user's message become separate messages, before the user's text. A call's input is always an object in
this dialect, so other arguments are sent as text under a special key. A thinking block has a signature, since clients
do not send back one without; what is compared is the thinking itself.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import fields, output_format, sampling, tools
from aworld_train.rollout.model_gateway.contents import Content, content, of_parts
from aworld_train.rollout.model_gateway.dialect import Dialect, ParsedRequest, Surroundings, event, new_id
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.model_gateway.history import History
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, ResponseConstraints

TEXT_ARGUMENTS = "_arguments_as_text"  # the key in a call's input for arguments that are not a JSON object

_READ = frozenset(
    {
        *("chat_template_kwargs", "max_tokens", "messages", "model", "output_config", "output_format"),
        *("stop_sequences", "stream", "system", "temperature", "tool_choice", "tools", "top_k", "top_p"),
    }
)
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {**sampling.NEUTRAL, "mcp_servers": ([],)}
_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
}
# https://docs.anthropic.com/en/api/errors
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: Json, last: ParsedRequest | None, around: Surroundings) -> ParsedRequest:
    sampling.refuse_changes(body, _READ, _NEUTRAL)
    sampling.refuse_other_template_options(body, around.rules)
    fields.text(body, "model")
    offered = tools.offered(body, last.tools if last else None, _tool, ("custom",), around.rules)
    choice, one_call = _choice(body, offered.functions, around.rules)
    request = ChatRequest(
        _messages(body, around.rules),
        offered.functions,
        use_tools=choice.may_call,
        max_tokens=fields.integer(body, "max_tokens", min_value=1),
        stop=sampling.stop_texts(body, "stop_sequences"),
        constraints=ResponseConstraints(
            choice.must_call, choice.tools, one_call, _output(body, around.rules)
        ),
        **sampling.requested_sampling(body),
    )
    return ParsedRequest(request, stream=fields.flag(body, "stream"), tools=offered)


def _tool(tool: Any, where: str) -> Json:
    return tools.function(fields.as_object(tool, where), where, schema="input_schema")


def _choice(body: Json, functions: Sequence[Json], rules: RequestRules) -> tuple[tools.ToolChoice, bool]:
    sent = fields.as_object(body.get("tool_choice") or {"type": "auto"}, "tool_choice")
    one = sent.get("disable_parallel_tool_use") is True
    one_call = tools.one_call(one, "tool_choice.disable_parallel_tool_use", functions, rules)
    kind = fields.as_text(sent.get("type"), "tool_choice.type")
    if kind == "any":
        return tools.wanted((), True, functions, rules), one_call
    if kind == "tool":
        name = fields.as_name(sent.get("name"), "tool_choice.name")
        return tools.wanted((name,), True, functions, rules), one_call
    if kind not in ("auto", "none"):
        raise fields.unsupported("tool_choice.type", "only auto, any, tool and none are possible")
    return tools.ToolChoice(may_call=kind == "auto"), one_call


def _output(body: Json, rules: RequestRules) -> OutputFormat | None:
    config = fields.as_object(body.get("output_config") or {}, "output_config")
    beta = output_format.wanted(body.get("output_format"), "output_format", rules)
    return output_format.wanted(config.get("format"), "output_config.format", rules) or beta


def _messages(body: Json, rules: RequestRules) -> tuple[Message, ...]:
    history = History()
    if body.get("system"):
        history.add(Message("system", fields.joined_text(body["system"], "system")))
    for index, item in enumerate(fields.array(body, "messages")):
        where = f"messages[{index}]"
        _add(history, fields.as_object(item, where), where, rules)
    messages = history.complete("messages")
    if messages[-1].role == "assistant":
        raise fields.unsupported(
            f"messages[{index}]", "the model does not continue a message that was begun for it"
        )
    return messages


def _add(history: History, item: Json, where: str, rules: RequestRules) -> None:
    role = fields.as_text(item.get("role"), f"{where}.role")
    blocks = item.get("content")
    if type(blocks) is str:
        blocks = [{"type": "text", "text": blocks}]
    if type(blocks) is not list:
        raise fields.wrong(blocks, f"{where}.content", "a string or an array of blocks")
    if role == "assistant":
        history.add(_assistant(blocks, f"{where}.content"))
    elif role == "user":
        _add_user(history, blocks, f"{where}.content", rules)
    elif role == "system":
        history.add(Message("system", fields.joined_text(blocks, f"{where}.content")))
    else:
        raise fields.invalid(f"{where}.role", "must be user, assistant or system")


def _add_user(history: History, blocks: list[Any], where: str, rules: RequestRules) -> None:
    own_blocks: list[tuple[str, Any]] = []
    for index, block in enumerate(blocks):
        if type(block) is dict and block.get("type") == "tool_result":
            result = block.get("content")
            history.add_result(
                fields.text(block, "tool_use_id", f"{where}[{index}].tool_use_id"),
                Content("")
                if result is None
                else content(result, f"{where}[{index}].content", rules, of_tool=True),
            )
        else:
            own_blocks.append((f"{where}[{index}]", block))
    if own_blocks or not blocks:
        text, images = of_parts(own_blocks, rules)
        history.add(Message("user", text, images=images))


def _assistant(blocks: list[Any], where: str) -> Message:
    calls, reasoning_texts, texts = [], [], []
    for index, block in enumerate(blocks):
        kind = block.get("type") if type(block) is dict else None
        if kind == "tool_use":
            calls.append(_call(block, f"{where}[{index}]"))
        elif kind == "thinking":
            reasoning_texts.append(fields.as_text(block.get("thinking"), f"{where}[{index}].thinking"))
        elif kind != "redacted_thinking":
            texts.append(fields.part_text(block, f"{where}[{index}]"))
    return Message("assistant", "\n".join(texts), tuple(calls), reasoning="\n".join(reasoning_texts))


def _call(block: Json, where: str) -> ToolCall:
    input_object = fields.as_object(block.get("input"), f"{where}.input")
    if input_object.keys() == {TEXT_ARGUMENTS} and type(input_object[TEXT_ARGUMENTS]) is str:
        arguments = input_object[TEXT_ARGUMENTS]
    else:
        arguments = _as_json(input_object, where)
    return ToolCall(
        fields.as_name(block.get("name"), f"{where}.name"), arguments, fields.text(block, "id", f"{where}.id")
    )


def _as_json(value: Json, where: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # an integer of thousands of digits, thousands of brackets
        raise fields.unsupported(f"{where}.input", "it cannot be written as JSON again") from None


def answer(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Json:
    (completion,) = completions
    return {
        **_empty_message(completion, model),
        "content": _blocks(completion),
        "stop_reason": _STOP_REASONS[completion.finish_reason],
        "usage": {"input_tokens": completion.prompt_tokens, "output_tokens": completion.token_count},
    }


def events(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Iterator[bytes]:
    (completion,) = completions
    for data in _events(completion, model):
        yield event(data, data["type"])


def _events(completion: Completion, model: str) -> Iterator[Json]:
    yield {"type": "message_start", "message": _empty_message(completion, model)}
    for index, block in enumerate(_blocks(completion)):
        empty, deltas = _in_deltas(block, completion)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _STOP_REASONS[completion.finish_reason], "stop_sequence": None},
        "usage": {"output_tokens": completion.token_count},
    }
    yield {"type": "message_stop"}


def _in_deltas(block: Json, completion: Completion) -> tuple[Json, list[Json]]:
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, [delta]
    if block["type"] == "thinking":
        thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
        signature = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [thinking, signature]
    return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]


def _empty_message(completion: Completion, model: str) -> Json:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": completion.prompt_tokens, "output_tokens": 0},
    }


def _blocks(completion: Completion) -> list[Json]:
    """The blocks of an answer; at least one text block."""
    blocks: list[Json] = []
    if completion.reasoning:
        thinking = completion.reasoning
        blocks.append({"type": "thinking", "thinking": thinking, "signature": _signature(thinking)})
    if completion.content or not completion.tool_calls:
        blocks.append({"type": "text", "text": completion.content, "citations": None})
    blocks += [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": _input(call.arguments)}
        for call in completion.tool_calls
    ]
    return blocks


def _signature(thinking: str) -> str:
    digest = hashlib.blake2b(thinking.encode(errors="surrogatepass"), digest_size=48).digest()
    return base64.b64encode(digest).decode()


def _input(arguments: str) -> Json:
    """Arguments as an object that can be written as JSON, which has no infinity."""
    try:
        value = json.loads(arguments)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    return value if type(value) is dict else {TEXT_ARGUMENTS: arguments}


def error(refused: RequestRefused) -> Json:
    """``param`` and ``code`` are additions to Anthropic's format."""
    default = "api_error" if refused.status >= 500 else "invalid_request_error"
    return {
        "type": "error",
        "error": {
            "type": _ERROR_TYPES.get(refused.status, default),
            "message": str(refused),
            "param": refused.parameter or None,
            "code": refused.code,
        },
    }


def error_event(refused: RequestRefused) -> bytes:
    return event(error(refused), "error")


DIALECT = Dialect("messages", read, answer, events, error, error_event)
