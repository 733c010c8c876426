"""OpenAI's client speaks to the gateway as to OpenAI: text, tools, streams, log-probabilities, errors."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
import openai
import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import chat
from aworld_train.rollout.model_gateway.dialect import ParsedRequest, Surroundings
from aworld_train.rollout.response_constraints import (
    NO_CONSTRAINTS,
    OutputFormat,
    RequestRules,
    ResponseConstraints,
)
from tests.gateways import MODEL, rollout_session

ANSWER = Completion("Two.", prompt_tokens=7, tokens=[11, 12], logprobs=[-0.5, -0.25], texts=["Tw", "o.é"])
CALLS = Completion(
    "",
    reasoning="I had better add.",
    tool_calls=(ToolCall("add", '{"a": 1}', "c1"), ToolCall("say", '{"text": "é"}', "c2")),
    finish_reason="tool_calls",
    prompt_tokens=9,
    tokens=[1, 2, 3],
)
USER: Any = [{"role": "user", "content": "1+1?"}]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "strict": True,
    },
}


async def post(url: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as http,
        http.post(url + "/chat/completions", data=data, headers=headers) as response,
    ):
        return response.status, await response.json(), response.headers


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="dummy", timeout=120)


async def test_an_answer_has_text_usage_and_the_rollouts_model() -> None:
    async with rollout_session(ANSWER) as (session, scripted), client(session.address()) as ai:
        got = await ai.chat.completions.create(model="whatever", messages=USER)
    (choice,) = got.choices
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == ("Two.", "stop", None)
    assert (got.model, got.object, choice.logprobs) == (MODEL, "chat.completion", None)
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (7, 2, 9)
    (request,) = scripted.requests
    assert request.messages == (Message("user", "1+1?"),)
    assert (request.tools, request.use_tools, request.max_tokens, request.stop) == ((), True, None, ())
    assert (request.temperature, request.top_p, request.top_k) == (None, None, None)


async def test_the_synchronous_client_works_too() -> None:
    def ask(url: str) -> str | None:
        with openai.OpenAI(base_url=url, api_key="dummy", timeout=120) as ai:
            got = ai.chat.completions.create(model="m", messages=USER)
            return got.choices[0].message.content

    async with rollout_session(ANSWER) as (session, _):
        assert await asyncio.to_thread(ask, session.address()) == "Two."


async def test_tool_calls_come_as_the_model_wrote_them() -> None:
    async with rollout_session(CALLS) as (session, scripted), client(session.address()) as ai:
        got = await ai.chat.completions.create(model="m", messages=USER, tools=[ADD])
    message = got.choices[0].message
    assert message.content is None
    assert got.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    assert [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls] == [
        ("c1", "add", '{"a": 1}'),
        ("c2", "say", '{"text": "é"}'),
    ]
    assert message.reasoning_content == "I had better add."
    # What only a constrained decoder would read does not get into the prompt.
    function = {key: value for key, value in ADD["function"].items() if key != "strict"}
    assert scripted.requests[0].tools == ({"type": "function", "function": function},)


async def test_an_answer_sent_back_is_the_message_that_was_sampled() -> None:
    async with rollout_session(CALLS, ANSWER) as (session, scripted), client(session.address()) as ai:
        got = await ai.chat.completions.create(model="m", messages=USER)
        history = [*USER, got.choices[0].message, {"role": "tool", "tool_call_id": "c2", "content": "2"}]
        await ai.chat.completions.create(model="m", messages=history)
    _, assistant, result = scripted.requests[1].messages
    assert assistant == CALLS.message
    assert result == Message("tool", "2", call_id="c2", name="say")


async def test_a_stream_adds_up_to_the_answer() -> None:
    async with rollout_session(CALLS) as (session, _), client(session.address()) as ai:
        stream = ai.chat.completions.stream(
            model="m",
            messages=USER,
            stream_options={"include_usage": True},
        )
        async with stream as events:
            async for _event in events:
                pass
            got = await events.get_final_completion()
    message = got.choices[0].message
    assert [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or []] == [
        (call.call_id, call.name, call.arguments) for call in CALLS.tool_calls
    ]
    assert message.content is None
    assert got.choices[0].finish_reason == "tool_calls"
    assert got.usage is not None
    assert got.usage.total_tokens == 12


async def test_a_stream_gives_role_reasoning_text_and_usage_in_this_order() -> None:
    answer = Completion("Yes", reasoning="Hm", prompt_tokens=1, tokens=[1], logprobs=[-1.0], texts=["Yes"])
    async with rollout_session(answer) as (session, _), client(session.address()) as ai:
        stream = await ai.chat.completions.create(
            model="m",
            messages=USER,
            stream=True,
            logprobs=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta.model_dump(exclude_none=True) for chunk in chunks[:-1]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"content": "Yes"},
        {},
    ]
    logprobs = chunks[-2].choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [one.token for one in logprobs.content] == ["Yes"]
    assert [chunk.usage is None for chunk in chunks] == [True] * 4 + [False]
    assert chunks[-1].choices == []
    assert len({chunk.id for chunk in chunks}) == 1


async def test_without_being_asked_a_stream_has_no_usage() -> None:
    async with rollout_session(ANSWER) as (session, _), client(session.address()) as ai:
        stream = await ai.chat.completions.create(model="m", messages=USER, stream=True)
        chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_log_probabilities_are_those_of_the_sampled_tokens() -> None:
    async with rollout_session(ANSWER) as (session, _), client(session.address()) as ai:
        got = await ai.chat.completions.create(model="m", messages=USER, logprobs=True, top_logprobs=0)
    logprobs = got.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    found = [(one.token, one.logprob, one.bytes, one.top_logprobs) for one in logprobs.content]
    assert found == [("Tw", -0.5, list(b"Tw"), []), ("o.é", -0.25, list("o.é".encode()), [])]


async def test_wishes_are_passed_on() -> None:
    async with rollout_session(ANSWER) as (session, scripted), client(session.address()) as ai:
        await ai.chat.completions.create(
            model="m",
            messages=USER,
            max_tokens=50,
            max_completion_tokens=40,
            stop="END",
            temperature=0,
            top_p=0.5,
            tools=[ADD],
            tool_choice="none",
            seed=3,
            user="somebody",
            metadata={"a": "b"},
            extra_body={"top_k": 5, "min_p": 0, "unheard_of": [1]},
        )
    (request,) = scripted.requests
    assert (request.max_tokens, request.stop, request.temperature, request.top_p, request.top_k) == (
        40,
        ("END",),
        0,
        0.5,
        5,
    )
    assert not request.use_tools
    assert len(request.tools) == 1


@pytest.mark.parametrize(
    ("extra", "parameter"),
    [
        ({"best_of": 2}, "best_of"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 1, "logprobs": True}, "top_logprobs"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice"),
        ({"tools": [ADD], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"functions": [{"name": "add"}]}, "functions"),
    ],
)
async def test_what_would_change_sampling_is_refused_where_requests_are_strict(
    extra: dict[str, Any], parameter: str
) -> None:
    async with rollout_session(ANSWER, strict=True) as (session, scripted):
        status, body, headers = await post(session.address(), {"model": "m", "messages": USER, **extra})
    assert (status, body["error"]["param"], body["error"]["code"]) == (
        400,
        parameter,
        "unsupported_parameter",
    )
    assert (body["error"]["type"], headers["x-should-retry"]) == ("invalid_request_error", "false")
    assert scripted.requests == []


@pytest.mark.parametrize(
    "extra",
    [
        {
            "n": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0.0,
            "logit_bias": {},
            "repetition_penalty": 1.0,
        },
        {"response_format": {"type": "text"}, "modalities": ["text"], "top_logprobs": 0, "logprobs": False},
        {"n": None, "stop": None, "tools": None, "temperature": None, "max_tokens": None, "stream": None},
        {"parallel_tool_calls": True, "tools": [ADD], "tool_choice": "auto"},
        {"parallel_tool_calls": False, "tools": [], "functions": [], "function_call": "none"},
        {"seed": 1, "store": True, "service_tier": "auto", "reasoning_effort": "low", "whatever": {"a": 1}},
    ],
)
async def test_what_changes_nothing_is_accepted(extra: dict[str, Any]) -> None:
    async with rollout_session(ANSWER) as (session, _):
        status, body, _headers = await post(session.address(), {"model": "m", "messages": USER, **extra})
    assert status == 200, body


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": USER, "temperature": "hot"}, "temperature"),
        ({"messages": USER, "temperature": -1}, "temperature"),
        ({"messages": USER, "temperature": 10**400}, "temperature"),
        ({"messages": USER, "top_p": 1.5}, "top_p"),
        ({"messages": USER, "top_p": True}, "top_p"),
        ({"messages": USER, "max_tokens": 0}, "max_tokens"),
        ({"messages": USER, "max_tokens": 1.5}, "max_tokens"),
        ({"messages": USER, "stop": ["a", 1]}, "stop[1]"),
        ({"messages": USER, "stop": ""}, "stop[0]"),
        ({"messages": USER, "stream": "yes"}, "stream"),
        ({"messages": USER, "stream_options": 1}, "stream_options"),
        ({"messages": USER, "tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"messages": USER, "tool_choice": 5}, "tool_choice"),
        ({"messages": USER, "model": 5}, "model"),
    ],
)
async def test_a_wrong_value_is_refused_by_its_name(body: dict[str, Any], parameter: str) -> None:
    async with rollout_session(ANSWER) as (session, scripted):
        status, received, _headers = await post(session.address(), body)
    assert (status, received["error"]["param"]) == (400, parameter)
    assert received["error"]["message"]
    assert scripted.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"messages": ' + b"9" * 5000 + b"}",
    ],
)
async def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async with rollout_session(ANSWER) as (session, scripted):
        status, received, _headers = await post(session.address(), body)
    assert status == 400
    assert received["error"]["code"] == "invalid_json"
    assert scripted.requests == []


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xed\xa0\xbd"], ids=["escaped", "as it is"])
async def test_half_of_a_surrogate_pair_is_replaced(half: bytes) -> None:
    content = b'"cut ' + half + b', whole \\ud83d\\ude00"'
    body = b'{"messages": [{"role": "user", "content": %s}]}' % content
    async with rollout_session(ANSWER) as (session, scripted):
        status, _received, _headers = await post(session.address(), body)
    assert status == 200
    replaced = "cut \N{REPLACEMENT CHARACTER}, whole \N{GRINNING FACE}"
    assert scripted.requests[0].messages[0].content == replaced


async def test_every_kind_of_message_arrives() -> None:
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        },
        {"role": "user", "content": "\ud83d\ude00 1+1?", "name": "somebody"},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "Add.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "", "function_call": {"name": "old", "arguments": "{"}},
        {"role": "function", "name": "old", "content": "4"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    body = json.dumps({"messages": messages}).replace("\\ude00", "\\uDE00").encode()
    async with rollout_session(ANSWER) as (session, scripted):
        status, received, _headers = await post(session.address(), body)
    assert status == 200, received
    assert scripted.requests[0].messages == (
        Message("system", "Be\nbrief."),
        Message("user", "😀 1+1?"),
        Message("assistant", "", (ToolCall("add", "{}", "c1"),), reasoning="Add."),
        Message("tool", "2", call_id="c1", name="add"),
        Message("assistant", "", (ToolCall("old", "{"),)),
        Message("tool", "4", name="old"),
        Message("assistant", "No."),
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "code", "raised"),
    [
        (
            RequestRefused("too long", code="context_length_exceeded"),
            400,
            "context_length_exceeded",
            openai.BadRequestError,
        ),
        (RequestRefused("enough", status=429, code="budget"), 429, "budget", openai.RateLimitError),
        (RequestRefused("gone", status=503, code="stopped"), 503, "stopped", openai.InternalServerError),
        (RuntimeError("secret"), 500, "internal_error", openai.InternalServerError),
        (asyncio.CancelledError(), 500, "internal_error", openai.InternalServerError),
    ],
)
async def test_a_refusal_is_raised_by_the_client_and_not_tried_again(
    stream: bool, failure: BaseException, status: int, code: str, raised: type[openai.APIStatusError]
) -> None:
    async with rollout_session(failure) as (session, scripted), client(session.address()) as ai:
        with pytest.raises(raised) as caught:
            await ai.chat.completions.create(model="m", messages=USER, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert len(scripted.requests) == 1
    assert "secret" not in str(caught.value)


async def test_an_unexpected_failure_names_its_type_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with rollout_session(RuntimeError("secret")) as (session, _):
        _status, body, _headers = await post(session.address(), {"messages": USER})
    assert body["error"] == {
        "message": "the model failed: RuntimeError",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert "secret" in caplog.text


async def test_a_stream_that_takes_long_is_kept_alive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", 0.01)
    gate = asyncio.Event()
    async with rollout_session(ANSWER, gate=gate) as (session, _), aiohttp.ClientSession() as http:
        url = session.address() + "/chat/completions"
        async with http.post(url, json={"messages": USER, "stream": True}) as response:
            assert [await response.content.readline() for _ in range(4)] == [b": sampling\n", b"\n"] * 2
            gate.set()
            rest = await response.content.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b"Two." in rest
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_failure_in_a_stream_that_has_begun_is_raised_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", 0.01)
    gate = asyncio.Event()
    refused = RequestRefused("too long", code="context_length_exceeded")
    async with rollout_session(refused, gate=gate) as (session, scripted), client(session.address()) as ai:
        stream = await ai.chat.completions.create(model="m", messages=USER, stream=True)
        gate.set()
        with pytest.raises(openai.APIError, match="too long") as caught:
            async for _chunk in stream:
                pass
    assert caught.value.code == "context_length_exceeded"
    assert len(scripted.requests) == 1


def test_an_answer_has_all_that_openais_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "new_id", lambda prefix: f"{prefix}1")
    monkeypatch.setattr("time.time", lambda: 5.7)
    head = {"id": "chatcmpl-1", "created": 5, "model": "m"}
    logprobs = {
        "content": [
            {"token": "Tw", "logprob": -0.5, "bytes": [84, 119], "top_logprobs": []},
            {"token": "o.é", "logprob": -0.25, "bytes": [111, 46, 195, 169], "top_logprobs": []},
        ],
        "refusal": None,
    }
    names = [
        ("c1", {"name": "add", "arguments": '{"a": 1}'}),
        ("c2", {"name": "say", "arguments": '{"text": "é"}'}),
    ]
    calls = [{"id": call_id, "type": "function", "function": function} for call_id, function in names]
    called: Any = {"role": "assistant", "content": None, "refusal": None}
    called |= {"reasoning_content": "I had better add.", "tool_calls": calls}
    text = {"role": "assistant", "content": "Two.", "refusal": None}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    parsed = ParsedRequest(ChatRequest(USER, logprobs=True), usage=True)
    assert chat.answer([CALLS, ANSWER], parsed, "m") == {
        **head,
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": called, "logprobs": None, "finish_reason": "tool_calls"},
            {"index": 1, "message": text, "logprobs": logprobs, "finish_reason": "stop"},
        ],
        "usage": usage,
    }
    head |= {"object": "chat.completion.chunk", "usage": None}
    deltas: list[Any] = [{"role": "assistant", "content": None}, {"reasoning_content": "I had better add."}]
    for index, (call_id, function) in enumerate(names):
        begun = {"id": call_id, "type": "function", "function": {**function, "arguments": ""}}
        deltas.append({"tool_calls": [{"index": index, **begun}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    choices: list[Any] = [(0, delta, None, None) for delta in deltas] + [(0, {}, None, "tool_calls")]
    choices += [(1, {"role": "assistant", "content": ""}, None, None), (1, {"content": "Two."}, None, None)]
    choices += [(1, {}, logprobs, "stop")]
    keys = ("index", "delta", "logprobs", "finish_reason")
    *events, end = b"".join(chat.events([CALLS, ANSWER], parsed, "m")).decode().strip().split("\n\n")
    assert [json.loads(event.removeprefix("data: ")) for event in events] == [
        *({**head, "choices": [dict(zip(keys, choice, strict=True))]} for choice in choices),
        {**head, "choices": [], "usage": usage},
    ]
    assert end == "data: [DONE]"


def test_a_request_is_read_with_all_that_it_wants() -> None:
    rules = RequestRules(max_top_logprobs=3)
    body: Any = {"messages": USER, "tools": [ADD, {"function": {"name": "say"}}]}
    wishes: Any = {
        "tool_choice": ADD,
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
    }
    options: Any = {"max_completion_tokens": 1, "n": 128, "logprobs": True, "top_logprobs": 3}
    stream: Any = {"stream": True, "stream_options": {"include_usage": True}}
    found = chat.read({**body, **wishes, **options, **stream}, None, Surroundings(rules))
    assert (found.stream, found.usage, found.sent) == (True, True, USER)
    assert found.request == ChatRequest(
        (Message("user", "1+1?"),),
        found.request.tools,
        max_tokens=1,
        logprobs=True,
        top_logprobs=3,
        choices=128,
        constraints=ResponseConstraints(True, ("add",), True, OutputFormat()),
    )
    assert len(found.request.tools) == 2
    assert chat.read(body).request.constraints == NO_CONSTRAINTS


@pytest.mark.parametrize(
    ("wish", "constraints"),
    [
        ({"tool_choice": "required"}, ResponseConstraints(must_call=True)),
        ({"tool_choice": {"type": "allowed_tools", "tools": [ADD]}}, ResponseConstraints(tools=("add",))),
        ({"parallel_tool_calls": False}, ResponseConstraints(one_call=True)),
        ({"response_format": {"type": "json_object"}}, ResponseConstraints(output=OutputFormat())),
        ({"parallel_tool_calls": True}, ResponseConstraints()),
    ],
)
def test_one_wish_is_enough(wish: Any, constraints: ResponseConstraints) -> None:
    assert chat.read({"messages": USER, "tools": [ADD], **wish}).request.constraints == constraints


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"top_logprobs": 1}, "top_logprobs: it takes `logprobs: true` beside it"),
        ({"n": 129}, "n must be an integer from 1 to 128, and is 129"),
        ({"n": 0}, "n must be an integer from 1 on, and is 0"),
        ({"max_completion_tokens": 0}, "max_completion_tokens must be an integer from 1 on, and is 0"),
        ({"function_call": "auto"}, "function_call: superseded by OpenAI; offer `tools`"),
        ({"tools": [{}]}, "tools[0].function must be an object, and is null"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls must be a boolean, and is 1"),
        (
            {"messages": [{"role": "nobody"}]},
            "messages[0].role must be system, developer, user, assistant, tool or function",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "x"}]}]},
            "messages[0].tool_calls[0].type: only functions are possible",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": ""}}]},
            "messages[0].function_call.name must be a string that is not empty, and is a string",
        ),
        (
            {"messages": [{"role": "tool", "content": "", "name": 1}]},
            "messages[0].name must be a string, and is 1",
        ),
        (
            {"messages": [{"role": "tool", "content": "", "tool_call_id": 1}]},
            "messages[0].tool_call_id must be a string, and is 1",
        ),
        *(
            ({"messages": [{"role": "assistant", name: 1}]}, f"messages[0].{name} must be a string, and is 1")
            for name in ("reasoning_content", "reasoning")
        ),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(extra: Any, message: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        chat.read({"messages": USER, **extra}, None, Surroundings(RequestRules(max_top_logprobs=2)))
    assert str(caught.value) == message


def test_calls_that_are_written_into_text_are_read_where_there_are_no_others() -> None:
    written = [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}]
    text = f"x\nCalling tools:\n{written}"
    call = {"id": "c2", "function": {"name": "say", "arguments": "{}"}}
    sent = [
        {"role": "assistant", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [call]},
    ]
    messages = chat.read({"messages": sent}).request.messages
    assert [(one.content, [call.name for call in one.tool_calls]) for one in messages] == [
        ("x", ["add"]),
        (text, ["say"]),
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error")),
        *((429, "rate_limit_error"), (499, "invalid_request_error"), (500, "server_error")),
    ],
)
def test_a_refusal_has_the_kind_of_its_status(status: int, kind: str) -> None:
    refused = RequestRefused("no", status=status, code="c", parameter="p")
    error = {"message": "no", "type": kind, "param": "p", "code": "c"}
    assert chat.error(refused) == {"error": error}
    assert json.loads(chat.error_event(refused).removeprefix(b"data: ")) == {"error": error}
