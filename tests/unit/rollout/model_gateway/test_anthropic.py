"""Anthropic's client speaks to the gateway as to Anthropic: blocks, tool results, streams, errors."""

import asyncio
import json
import re
from typing import Any

import aiohttp
import anthropic
import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import anthropic as dialect
from aworld_train.rollout.model_gateway.dialect import EMPTY, ParsedRequest, Surroundings
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, ResponseConstraints
from tests.gateways import MODEL, rollout_session

ANSWER = Completion("Two.", prompt_tokens=7, tokens=[11, 12])
CALLS = Completion(
    "I add.",
    reasoning="I had better add.",
    tool_calls=(ToolCall("add", '{"a": 1}', "c1"), ToolCall("say", '{"text": "é"}', "c2")),
    finish_reason="tool_calls",
    prompt_tokens=9,
    tokens=[1, 2, 3],
)
USER: Any = [{"role": "user", "content": "1+1?"}]
ADD: Any = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}


async def post(root: str, body: Any) -> tuple[int, Any, Any]:
    async with aiohttp.ClientSession() as http, http.post(root + "/v1/messages", json=body) as response:
        return response.status, await response.json(), response.headers


def client(root: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=root, api_key="dummy", timeout=120)


async def test_an_answer_has_text_usage_and_the_rollouts_model() -> None:
    async with rollout_session(ANSWER) as (session, scripted), client(session.root()) as ai:
        got = await ai.messages.create(
            model="m",
            max_tokens=9,
            system=[
                {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "brief."},
            ],
            messages=USER,
            tools=[ADD],
            stop_sequences=["END"],
            extra_body={"temperature": 0.5, "top_k": 3, "thinking": {"type": "enabled", "budget_tokens": 9}},
        )
    assert [block.type for block in got.content] == ["text"]
    assert got.content[0].text == "Two."
    assert (got.model, got.stop_reason, got.usage.input_tokens, got.usage.output_tokens) == (
        MODEL,
        "end_turn",
        7,
        2,
    )
    (request,) = scripted.requests
    assert request.messages == (Message("system", "Be\nbrief."), Message("user", "1+1?"))
    assert (request.max_tokens, request.stop, request.temperature, request.top_k) == (9, ("END",), 0.5, 3)
    function = {"name": "add", "description": "Adds.", "parameters": ADD["input_schema"]}
    assert request.tools == ({"type": "function", "function": function},)


async def test_the_synchronous_client_works_with_its_key_at_the_common_address() -> None:
    def ask(root: str, key: str) -> Any:
        with anthropic.Anthropic(base_url=root, api_key=key, timeout=120) as ai:
            return ai.messages.create(model="m", max_tokens=9, messages=USER).content[0]

    async with rollout_session(ANSWER) as (session, _):
        root = session.root().partition("/rollouts/")[0]
        assert (await asyncio.to_thread(ask, root, session.api_key())).text == "Two."


async def test_an_answer_sent_back_is_the_message_that_was_sampled() -> None:
    async with rollout_session(CALLS, ANSWER) as (session, scripted), client(session.root()) as ai:
        got = await ai.messages.create(model="m", max_tokens=9, messages=USER)
        results = {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "said"},
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "2"}]},
                {"type": "tool_result", "tool_use_id": "c9", "is_error": True},
                {"type": "text", "text": "Go on."},
            ],
        }
        history: Any = [*USER, got.to_param(), results]
        await ai.messages.create(model="m", max_tokens=9, messages=history)
    assert got.stop_reason == "tool_use"
    assert [block.type for block in got.content] == ["thinking", "text", "tool_use", "tool_use"]
    user, assistant, *after = scripted.requests[1].messages
    assert (user, assistant.key) == (Message("user", "1+1?"), CALLS.message.key)
    assert assistant.reasoning == CALLS.reasoning
    assert [call.call_id for call in assistant.tool_calls] == ["c1", "c2"]
    assert after == [
        Message("tool", "said", call_id="c2", name="say"),
        Message("tool", "2", call_id="c1", name="add"),
        Message("tool", "", call_id="c9"),
        Message("user", "Go on."),
    ]


@pytest.mark.parametrize(
    "answer", [ANSWER, CALLS, Completion("", tokens=[1]), Completion("T", finish_reason="length")]
)
async def test_a_stream_adds_up_to_the_answer(answer: Completion) -> None:
    async with rollout_session(answer) as (session, _), client(session.root()) as ai:
        async with ai.messages.stream(model="m", max_tokens=9, messages=USER) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            streamed = await stream.get_final_message()
        whole = await ai.messages.create(model="m", max_tokens=9, messages=USER)
    assert text == answer.content
    assert [block.model_dump() for block in streamed.content] == [
        block.model_dump() for block in whole.content
    ]
    assert (streamed.stop_reason, streamed.usage) == (whole.stop_reason, whole.usage)


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "", '{"a": 1e999}', '{"a": NaN}', "9" * 5000])
async def test_arguments_that_are_no_object_come_back_as_they_were(arguments: str) -> None:
    answer = Completion("", tool_calls=(ToolCall("add", arguments, "c1"),), finish_reason="tool_calls")
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no"}]}
    async with rollout_session(answer, ANSWER) as (session, scripted), client(session.root()) as ai:
        async with ai.messages.stream(model="m", max_tokens=9, messages=USER) as stream:
            got = await stream.get_final_message()
        history: Any = [*USER, got.to_param(), result]
        await ai.messages.create(model="m", max_tokens=9, messages=history)
    assert scripted.requests[1].messages[1] == answer.message


@pytest.mark.parametrize(
    ("extra", "parameter"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}, {"type": "smell"}]}]},
            "messages[0].content[1]",
        ),
        ({"messages": [*USER, {"role": "assistant", "content": "It is"}]}, "messages[1]"),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "name": "a", "input": "{}"}]}
                ]
            },
            "messages[0].content[0].input",
        ),
        ({"system": 5}, "system"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "a", "input_schema": 5}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "add"}}, "tool_choice"),
        (
            {"tools": [ADD], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"stop_sequences": [1]}, "stop_sequences[0]"),
        ({"max_tokens": "9"}, "max_tokens"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_its_name(extra: dict[str, Any], parameter: str) -> None:
    async with rollout_session(ANSWER, strict=True) as (session, scripted):
        status, body, headers = await post(session.root(), {"messages": USER, "max_tokens": 9, **extra})
    assert (status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert (body["error"]["param"], headers["x-should-retry"]) == (parameter, "false")
    assert scripted.requests == []


async def test_tools_can_be_forbidden() -> None:
    async with rollout_session(ANSWER) as (session, scripted):
        await post(session.root(), {"messages": USER, "tools": [ADD], "tool_choice": {"type": "none"}})
    assert not scripted.requests[0].use_tools


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refused", "raised", "kind"),
    [
        (
            RequestRefused("too long", code="context_length_exceeded"),
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
        (RequestRefused("enough", status=429), anthropic.RateLimitError, "rate_limit_error"),
        (RuntimeError(), anthropic.InternalServerError, "api_error"),
    ],
)
async def test_a_refusal_is_raised_by_the_client_and_not_tried_again(
    stream: bool, refused: Exception, raised: type[anthropic.APIStatusError], kind: str
) -> None:
    async with rollout_session(refused) as (session, scripted), client(session.root()) as ai:
        with pytest.raises(raised) as caught:
            await ai.messages.create(model="m", max_tokens=9, messages=USER, stream=stream)
    body: Any = caught.value.body
    assert body["error"]["type"] == kind
    assert len(scripted.requests) == 1


async def test_a_failure_in_a_stream_that_has_begun_is_raised_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", 0.01)
    gate = asyncio.Event()
    async with (
        rollout_session(RequestRefused("too long"), gate=gate) as (session, _),
        client(session.root()) as ai,
    ):
        stream = await ai.messages.create(model="m", max_tokens=9, messages=USER, stream=True)
        gate.set()
        with pytest.raises(anthropic.APIError, match="too long"):
            async for _event in stream:
                pass


def test_an_answer_has_all_that_anthropics_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "new_id", lambda prefix: f"{prefix}1")
    parsed = ParsedRequest(ChatRequest(()))
    body = dialect.answer([CALLS], parsed, "m")
    thinking, text, add, say = body["content"]
    signature = thinking.pop("signature")
    other = dialect.answer([Completion("", reasoning="Hm")], parsed, "m")["content"][0]["signature"]
    assert len(signature) == len(other) == 64 and signature != other
    assert (thinking, text) == (
        {"type": "thinking", "thinking": "I had better add."},
        {"type": "text", "text": "I add.", "citations": None},
    )
    assert add == {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    assert (say["id"], say["input"]) == ("c2", {"text": "é"})
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    assert {key: value for key, value in body.items() if key != "content"} == {
        **{**head, "stop_reason": "tool_use"},
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }
    empty = [
        {"type": "thinking", "thinking": "", "signature": ""},
        {**text, "text": ""},
        *({**call, "input": {}} for call in (add, say)),
    ]
    deltas: list[Any] = [
        [
            {"type": "thinking_delta", "thinking": "I had better add."},
            {"type": "signature_delta", "signature": signature},
        ],
        [{"type": "text_delta", "text": "I add."}],
        *([{"type": "input_json_delta", "partial_json": json.dumps(call["input"])}] for call in (add, say)),
    ]
    usage = {"input_tokens": 9, "output_tokens": 0}
    expected: list[Any] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, (block, parts) in enumerate(zip(empty, deltas, strict=True)):
        expected.append({"type": "content_block_start", "index": index, "content_block": block})
        expected += [{"type": "content_block_delta", "index": index, "delta": part} for part in parts]
        expected.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    expected += [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    sent = [one.decode().removesuffix("\n\n").split("\n") for one in dialect.events([CALLS], parsed, "m")]
    found = [json.loads(data.removeprefix("data: ")) for _, data in sent]
    assert found == expected
    assert [name for name, _ in sent] == [f"event: {one['type']}" for one in found]


def test_a_request_is_read_with_all_that_it_wants() -> None:
    tool_choice = {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "a"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "b"},
        {"type": "thinking", "thinking": "c"},
        "d",
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"é": 1}},
        {"type": "tool_use", "id": "c2", "name": "add", "input": {dialect.TEXT_ARGUMENTS: "x"}},
        {"type": "tool_use", "name": "add", "input": {dialect.TEXT_ARGUMENTS: 1}},
    ]
    body: Any = {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": []},
            {"role": "system", "content": "More."},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]},
        ],
        "tools": [ADD, {"type": "custom", "name": "say"}],
        "tool_choice": tool_choice,
        "output_format": {"type": "json_object"},
        "stop_sequences": ["END"],
        "max_tokens": 1,
        "stream": True,
    }
    found = dialect.read(body, None, EMPTY)
    assert found.stream
    assert found.request == ChatRequest(
        (
            Message("system", "Be brief."),
            Message("user", ""),
            Message("system", "More."),
            Message(
                "assistant",
                "b\nd",
                (
                    ToolCall("add", '{"é": 1}', "c1"),
                    ToolCall("add", "x", "c2"),
                    ToolCall("add", '{"_arguments_as_text": 1}'),
                ),
                reasoning="a\nc",
            ),
            Message("tool", "r", call_id="c1", name="add"),
        ),
        found.request.tools,
        max_tokens=1,
        stop=("END",),
        constraints=ResponseConstraints(True, ("add",), True, OutputFormat()),
    )
    assert len(found.request.tools) == 2
    plain = dialect.read({"messages": USER, "system": "", "mcp_servers": []}, None, EMPTY)
    assert (plain.stream, plain.request) == (False, ChatRequest((Message("user", "1+1?"),)))


@pytest.mark.parametrize(
    ("choice", "constraints", "may_call"),
    [
        ({"type": "auto"}, ResponseConstraints(), True),
        ({"type": "none"}, ResponseConstraints(), False),
        ({"type": "any"}, ResponseConstraints(must_call=True), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ResponseConstraints(one_call=True), True),
    ],
)
def test_a_choice_is_a_wish(choice: Any, constraints: ResponseConstraints, may_call: bool) -> None:
    request = dialect.read({"messages": USER, "tools": [ADD], "tool_choice": choice}, None, EMPTY).request
    assert (request.constraints, request.use_tools) == (constraints, may_call)


def test_the_form_of_an_answer_may_be_given_in_either_place() -> None:
    schema: Any = {"type": "json_schema", "schema": {"type": "string"}}
    both = {"output_config": {"format": schema}, "output_format": {"type": "json_object"}}
    outputs = [
        dialect.read({"messages": USER, **extra}, None, EMPTY).request.constraints.output
        for extra in ({}, both)
    ]
    assert outputs == [None, OutputFormat('{"type": "string"}')]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"messages": [{"role": "x", "content": []}]}, "messages[0].role must be user, assistant or system"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content must be a string or an array of blocks, and is 5",
        ),
        (
            {"messages": [*USER, {"role": "assistant", "content": "It is"}]},
            "messages[1]: the model does not continue a message that was begun for it",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]},
            "messages[0].content[0].thinking must be a string",
        ),
        (
            {"messages": [{"role": "assistant", "content": ["a", 5]}]},
            "messages[0].content[1] must be an object, and is 5",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "input": {"a": 10**5000}}]}
                ]
            },
            "messages[0].content[0].input: it cannot be written as JSON again",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}]},
            "messages[0].content[0].name must be a string that is not empty",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 1}]}]},
            "messages[0].content[0].tool_use_id must be a string, and is 1",
        ),
        ({"tool_choice": "any"}, "tool_choice must be an object, and is a string"),
        ({"tool_choice": {"type": "x"}}, "tool_choice.type: only auto, any, tool and none are possible"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name must be a string that is not empty"),
        ({"max_tokens": 0}, "max_tokens must be an integer from 1 on, and is 0"),
        ({"output_config": [1]}, "output_config must be an object, and is an array"),
        ({"model": 1}, "model must be a string, and is 1"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs.a: the recipe decides"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(extra: Any, message: str) -> None:
    with pytest.raises(RequestRefused, match=re.escape(message)):
        dialect.read({"messages": USER, **extra}, None, Surroundings(RequestRules()))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error")),
        *((404, "not_found_error"), (413, "request_too_large"), (429, "rate_limit_error")),
        *((499, "invalid_request_error"), (500, "api_error"), (529, "overloaded_error")),
    ],
)
def test_a_refusal_has_the_kind_of_its_status(status: int, kind: str) -> None:
    refused = RequestRefused("no", status=status, code="c")
    error = {"type": "error", "error": {"type": kind, "message": "no", "param": None, "code": "c"}}
    assert dialect.error(refused) == error
    head, data = dialect.error_event(refused).decode().removesuffix("\n\n").split("\n")
    assert (head, json.loads(data.removeprefix("data: "))) == ("event: error", error)


async def test_tokens_are_counted_without_an_answer_and_under_the_same_rules() -> None:
    async with rollout_session(ANSWER, strict=True) as (session, scripted), client(session.root()) as ai:
        counted = await ai.messages.count_tokens(model="m", messages=USER)
        with pytest.raises(anthropic.BadRequestError, match="a forced call"):
            await ai.messages.count_tokens(model="m", messages=USER, tool_choice={"type": "any"}, tools=[ADD])
    assert counted.input_tokens == len("1+1?")
    assert scripted.requests == []
