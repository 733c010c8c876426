"""OpenAI's client speaks to the gateway in responses: items, calls, streams, errors."""

import asyncio
import itertools
import json
import re
from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import responses
from aworld_train.rollout.model_gateway.dialect import EMPTY, ParsedRequest, Surroundings
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, ResponseConstraints
from tests.gateways import MODEL, rollout_session

ANSWER = Completion("Two.", prompt_tokens=7, tokens=[11, 12], logprobs=[-0.5, -0.25], texts=["Tw", "o."])
CALLS = Completion(
    "I add.",
    reasoning="I had better add.",
    tool_calls=(ToolCall("add", '{"a": 1}', "c1"), ToolCall("say", '{"text": "é"}', "c2")),
    finish_reason="tool_calls",
    prompt_tokens=9,
    tokens=[1, 2, 3],
)
CUT = Completion("Tw", finish_reason="length", prompt_tokens=7, tokens=[11])
ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


async def post(url: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.post(url + "/responses", json=body) as response:
        return response.status, await response.json()


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="dummy", timeout=120)


async def test_an_answer_has_text_usage_and_the_rollouts_model() -> None:
    async with rollout_session(ANSWER) as (session, scripted), client(session.address()) as ai:
        got = await ai.responses.create(
            model="m",
            instructions="Be brief.",
            input="1+1?",
            max_output_tokens=9,
            temperature=0.5,
            tools=[ADD],
        )
    assert (got.output_text, got.status, got.model) == ("Two.", "completed", MODEL)
    assert got.usage is not None
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.total_tokens) == (7, 2, 9)
    assert got.usage.output_tokens_details.reasoning_tokens == 0
    (request,) = scripted.requests
    assert request.messages == (Message("system", "Be brief."), Message("user", "1+1?"))
    assert (request.max_tokens, request.temperature) == (9, 0.5)
    function = {key: ADD[key] for key in ("name", "description", "parameters")}
    assert request.tools == ({"type": "function", "function": function},)


async def test_an_answer_sent_back_is_the_message_that_was_sampled() -> None:
    async with rollout_session(CALLS, ANSWER) as (session, scripted), client(session.address()) as ai:
        got = await ai.responses.create(model="m", input="1+1?")
        results = [
            {"type": "function_call_output", "call_id": "c2", "output": "said"},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "2"}],
            },
        ]
        history: Any = [{"role": "user", "content": "1+1?"}, *got.output, *results]
        await ai.responses.create(model="m", input=history)
    assert [item.type for item in got.output] == ["reasoning", "message", "function_call", "function_call"]
    assert scripted.requests[1].messages == (
        Message("user", "1+1?"),
        CALLS.message,
        Message("tool", "said", call_id="c2", name="say"),
        Message("tool", "2", call_id="c1", name="add"),
    )


async def test_calls_after_results_are_another_turn() -> None:
    items: Any = [
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call", "call_id": "c2", "name": "b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3"}]},
        {"type": "message", "role": "assistant", "content": "4"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "5"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "6"}]},
        {"type": "function_call", "call_id": "c3", "name": "c", "arguments": "{}"},
    ]
    async with rollout_session(ANSWER) as (session, scripted), client(session.address()) as ai:
        await ai.responses.create(model="m", input=items)
    assert scripted.requests[0].messages == (
        Message("assistant", "", (ToolCall("a", "{}", "c1"),)),
        Message("tool", "1", call_id="c1", name="a"),
        Message("assistant", "", (ToolCall("b", "{}", "c2"),)),
        Message("tool", "2", call_id="c2", name="b"),
        Message("assistant", "3"),
        Message("assistant", "4"),
        Message("system", "5"),
        Message("assistant", "", (ToolCall("c", "{}", "c3"),), reasoning="6"),
    )


@pytest.mark.parametrize("answer", [ANSWER, CALLS, Completion("", tokens=[1])])
async def test_a_stream_adds_up_to_the_answer(answer: Completion) -> None:
    async with (
        rollout_session(answer) as (session, _),
        client(session.address()) as ai,
        ai.responses.stream(model="m", input="1+1?") as stream,
    ):
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        got = await stream.get_final_response()
    assert "".join(deltas) == got.output_text == answer.content
    calls = [item for item in got.output if item.type == "function_call"]
    assert [(one.call_id, one.name, one.arguments) for one in calls] == [
        (call.call_id, call.name, call.arguments) for call in answer.tool_calls
    ]
    thoughts = [item.content[0].text for item in got.output if item.type == "reasoning" and item.content]
    assert "".join(thoughts) == answer.reasoning


async def test_the_events_of_a_stream_come_in_openais_order() -> None:
    async with rollout_session(CALLS) as (session, _), client(session.address()) as ai:
        events = [event async for event in await ai.responses.create(model="m", input="1+1?", stream=True)]
    call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    text = [
        "response.output_item.added",
        "response.content_part.added",
        "response.{}.delta",
        "response.{}.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        *(kind.format("reasoning_text") for kind in text),
        *(kind.format("output_text") for kind in text),
        *call,
        *call,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_an_answer_that_was_cut_off_says_so() -> None:
    async with rollout_session(CUT) as (session, _), client(session.address()) as ai:
        got = await ai.responses.create(model="m", input="1+1?")
        events = [event async for event in await ai.responses.create(model="m", input="1+1?", stream=True)]
    assert got.status == "incomplete"
    assert got.incomplete_details is not None
    assert got.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"


async def test_log_probabilities_come_where_they_are_asked_for() -> None:
    async with rollout_session(ANSWER) as (session, _), client(session.address()) as ai:
        got = await ai.responses.create(model="m", input="1+1?", include=["message.output_text.logprobs"])
        without = await ai.responses.create(model="m", input="1+1?")
    (part,) = got.output[0].content
    assert [(one.token, one.logprob) for one in part.logprobs] == [("Tw", -0.5), ("o.", -0.25)]
    assert without.output[0].content[0].logprobs == []


@pytest.mark.parametrize(
    ("extra", "parameter"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_smell"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "a", "call_id": "c"}]}, "input[0].arguments"),
        ({"input": [{"type": "reasoning", "content": [5]}]}, "input[0].content[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [ADD], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_its_name(extra: dict[str, Any], parameter: str) -> None:
    async with rollout_session(ANSWER, strict=True) as (session, scripted):
        status, body = await post(session.address(), {"input": "hi", **extra})
    assert (status, body["error"]["param"]) == (400, parameter)
    assert scripted.requests == []


async def test_an_item_without_a_type_is_told_from_one_of_another_type() -> None:
    async with rollout_session(ANSWER) as (session, _):
        _, body = await post(session.address(), {"input": [{}]})
    assert body["error"]["message"] == "input[0].type must be a string, and is null"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_raised_by_the_client_and_not_tried_again(stream: bool) -> None:
    refused = RequestRefused("too long", code="context_length_exceeded")
    async with rollout_session(refused) as (session, scripted), client(session.address()) as ai:
        with pytest.raises(openai.BadRequestError) as caught:
            await ai.responses.create(model="m", input="hi", stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert len(scripted.requests) == 1


async def test_a_failure_in_a_stream_that_has_begun_is_raised_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", 0.01)
    gate = asyncio.Event()
    async with (
        rollout_session(RequestRefused("too long"), gate=gate) as (session, _),
        client(session.address()) as ai,
    ):
        stream = await ai.responses.create(model="m", input="hi", stream=True)
        gate.set()
        with pytest.raises(openai.APIError, match="too long"):
            async for _event in stream:
                pass


async def test_arguments_that_are_no_json_arrive_as_they_are() -> None:
    answer = Completion("", tool_calls=(ToolCall("add", '{"a": ', "c1"),), finish_reason="tool_calls")
    async with rollout_session(answer, ANSWER) as (session, scripted), client(session.address()) as ai:
        got = await ai.responses.create(model="m", input="1+1?")
        history: Any = json.loads(json.dumps([item.model_dump() for item in got.output]))
        await ai.responses.create(model="m", input=history)
    assert scripted.requests[1].messages == (answer.message,)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_of_a_namespace_is_called_and_sent_back_by_its_own_name(stream: bool) -> None:
    calls = (ToolCall("crm__add", "{}", "c1"), ToolCall("add", "{}", "c2"))
    answer = Completion("", tool_calls=calls, finish_reason="tool_calls")
    offered: Any = [{"type": "namespace", "name": "crm", "description": "", "tools": [ADD]}, ADD]
    async with rollout_session(answer, ANSWER) as (session, scripted), client(session.address()) as ai:
        got: Any = await ai.responses.create(model="m", input="1+1?", tools=offered, stream=stream)
        if stream:
            *_, last = [event async for event in got]
            got = last.response
        history: Any = [item.to_dict() for item in got.output]
        await ai.responses.create(model="m", input=history, tools=offered)
    assert [(item["name"], item.get("namespace")) for item in history] == [("add", "crm"), ("add", None)]
    assert [tool["function"]["name"] for tool in scripted.requests[0].tools] == ["crm__add", "add"]
    assert scripted.requests[1].messages == (answer.message,)


def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identifiers that are numbered, and a clock that stands still."""
    numbers = itertools.count()
    monkeypatch.setattr(responses, "new_id", lambda prefix: f"{prefix}{next(numbers)}")
    monkeypatch.setattr("time.time", lambda: 5.7)


def events_of(completion: Completion, parsed: ParsedRequest) -> list[Any]:
    found = []
    for sent in responses.events([completion], parsed, "m"):
        name, data = sent.decode().removesuffix("\n\n").split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_an_answer_has_all_that_openais_has(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(monkeypatch)
    request = ChatRequest((), max_tokens=9, temperature=0.5, top_p=0.25, use_tools=False, logprobs=True)
    parsed = ParsedRequest(request, response_id="resp_x", previous_id="resp_w")
    head = {
        **{"id": "resp_x", "object": "response", "created_at": 5, "error": None, "instructions": None},
        **{"max_output_tokens": 9, "metadata": {}, "model": "m", "parallel_tool_calls": True},
        **{"previous_response_id": "resp_w", "store": True, "temperature": 0.5, "tools": [], "top_p": 0.25},
        **{"text": {"format": {"type": "text"}}, "tool_choice": "none", "truncation": "disabled"},
    }
    usage = {
        **{"input_tokens": 7, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}},
        **{"output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8},
    }
    cut = replace(
        CUT, reasoning="Hm", tool_calls=(ToolCall("add", "{", "c1"),), texts=["Tw"], logprobs=[-0.5]
    )
    status = {"status": "incomplete"}
    thought: Any = {"type": "reasoning_text", "text": "Hm"}
    token = {"token": "Tw", "logprob": -0.5, "bytes": [84, 119], "top_logprobs": []}
    text: Any = {"type": "output_text", "text": "Tw", "annotations": [], "logprobs": [token]}
    reasoning = {"id": "rs_0", "type": "reasoning", "summary": [], "content": [thought], **status}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text], **status}
    call = {"id": "fc_2", "type": "function_call", "call_id": "c1", "name": "add", "arguments": "{", **status}
    finished = {
        **{**head, **status, "incomplete_details": {"reason": "max_output_tokens"}},
        **{"output": [reasoning, message, call], "usage": usage},
    }
    assert responses.answer([cut], parsed, "m") == finished

    numbered(monkeypatch)
    begun = {**head, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    expected: list[Any] = [("created", {"response": begun}), ("in_progress", {"response": begun})]
    for index, (item, part, logprobs) in enumerate(
        [(reasoning, thought, {}), (message, text, {"logprobs": [token]})]
    ):
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        empty = {**part, "text": "", **({"logprobs": []} if logprobs else {})}
        expected += [
            (
                "output_item.added",
                {"output_index": index, "item": {**item, "status": "in_progress", "content": []}},
            ),
            ("content_part.added", {**place, "part": empty}),
            (f"{part['type']}.delta", {**place, **logprobs, "delta": part["text"]}),
            (f"{part['type']}.done", {**place, **logprobs, "text": part["text"]}),
            ("content_part.done", {**place, "part": part}),
            ("output_item.done", {"output_index": index, "item": item}),
        ]
    place = {"item_id": "fc_2", "output_index": 2}
    expected += [
        (
            "output_item.added",
            {"output_index": 2, "item": {**call, "status": "in_progress", "arguments": ""}},
        ),
        ("function_call_arguments.delta", {**place, "delta": "{"}),
        ("function_call_arguments.done", {**place, "name": "add", "arguments": "{"}),
        ("output_item.done", {"output_index": 2, "item": call}),
        ("incomplete", {"response": finished}),
    ]
    assert events_of(cut, parsed) == [
        {"type": f"response.{kind}", **data, "sequence_number": number}
        for number, (kind, data) in enumerate(expected)
    ]


def test_an_answer_without_anything_is_an_empty_message(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(monkeypatch)
    parsed = ParsedRequest(ChatRequest(()))
    found = responses.answer([Completion("")], parsed, "m")
    assert (found["id"], found["status"], found["incomplete_details"]) == ("resp_0", "completed", None)
    (item,) = found["output"]
    assert (item["status"], item["content"][0]["text"], item["content"][0]["logprobs"]) == (
        "completed",
        "",
        [],
    )
    assert "response.output_text.delta" not in [event["type"] for event in events_of(Completion(""), parsed)]


def test_a_request_is_read_with_all_that_it_wants() -> None:
    body: Any = {
        "input": "1+1?",
        "instructions": "Be brief.",
        "tools": [ADD],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_object"}},
        "include": ["message.output_text.logprobs"],
        "previous_response_id": "resp_1",
        "max_output_tokens": 1,
        "top_logprobs": 2,
        "top_p": 1,
        "stream": True,
    }
    earlier = (Message("user", "Hi"), Message("assistant", "Hello"))
    around = Surroundings(RequestRules(max_top_logprobs=2), {"resp_1": earlier})
    found = responses.read(body, None, around)
    carried = (*earlier, Message("user", "1+1?"))
    assert (found.stream, found.previous_id, found.carried) == (True, "resp_1", carried)
    assert (
        found.response_id.startswith("resp_")
        and found.response_id != responses.read(body, None, around).response_id
    )
    assert found.request == ChatRequest(
        (Message("system", "Be brief."), *carried),
        found.request.tools,
        max_tokens=1,
        logprobs=True,
        top_logprobs=2,
        top_p=1,
        constraints=ResponseConstraints(must_call=True, one_call=True, output=OutputFormat()),
    )
    plain = responses.read({"input": "1+1?"}, None, EMPTY)
    assert (plain.stream, plain.previous_id, plain.request) == (
        False,
        None,
        ChatRequest((Message("user", "1+1?"),)),
    )


def test_a_turns_items_are_one_message_as_long_as_nothing_stands_between() -> None:
    call: Any = {"type": "function_call", "name": "a", "arguments": "{}", "call_id": "c"}
    thought: Any = {
        "type": "reasoning",
        "summary": [{"text": "s"}],
        "content": [{"text": "x"}, {"text": "y"}],
    }
    answer: Any = {"role": "assistant", "content": "z"}
    items: Any = [thought, answer, call, answer, call, thought, call, answer, thought]
    items += [
        {"type": "function_call_output", "call_id": "c", "output": "r"},
        answer,
        {"role": "user", "content": "u"},
        call,
    ]
    a = ToolCall("a", "{}", "c")
    assert responses.read({"input": items}, None, EMPTY).request.messages == (
        Message("assistant", "z", (a,), reasoning="x\ny"),
        Message("assistant", "z", (a,)),
        Message("assistant", "", (a,), reasoning="x\ny"),
        Message("assistant", "z"),
        Message("assistant", "", reasoning="x\ny"),
        Message("tool", "r", call_id="c", name="a"),
        Message("assistant", "z"),
        Message("user", "u"),
        Message("assistant", "", (a,)),
    )
    around = Surroundings(responses={"r": (Message("assistant", "", reasoning="earlier"),)})
    for item, message in ((answer, Message("assistant", "z")), (call, Message("assistant", "", (a,)))):
        found = responses.read({"input": [item], "previous_response_id": "r"}, None, around)
        assert found.request.messages[1:] == (message,)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"prompt": {"id": "p"}}, "prompt: no such thing is stored; name an earlier answer as"),
        ({"background": True}, "background: an answer comes with its request alone; wait for it"),
        ({"text": [1]}, "text must be an object, and is an array"),
        ({"include": "x"}, "include must be an array, and is a string"),
        ({"previous_response_id": "x" * 101}, f"this agent has had no answer {'x' * 100!r} in this episode"),
        ({"input": 5}, "input must be a string or an array of items, and is 5"),
        ({"input": [5]}, "input[0] must be an object, and is 5"),
        (
            {"input": [{"type": "message", "role": "x"}]},
            "input[0].role must be system, developer, user or assistant",
        ),
        ({"input": [{"type": "reasoning", "summary": 1}]}, "input[0].summary must be an array, and is 1"),
        ({"input": [{"type": "reasoning", "content": [{}]}]}, "input[0].content[0].text must be a string"),
        ({"input": [{"type": "function_call"}]}, "input[0].name must be a string that is not empty"),
        ({"input": [{"type": "item_reference"}]}, "input[0]: items are not stored; send the item itself"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type: no such item reaches the model"),
        (
            {"input": [{"type": "function_call_output", "call_id": 1, "output": ""}]},
            "input[0].call_id must be a string, and is 1",
        ),
        (
            {"input": [{"role": "assistant", "content": 1}]},
            "input[0].content must be a string or an array of parts",
        ),
        ({"tools": [{"type": None}]}, "tools[0].type must be a string, and is null"),
        ({"max_output_tokens": 0}, "max_output_tokens must be an integer from 1 on, and is 0"),
        ({"model": 1}, "model must be a string, and is 1"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs.a: the recipe decides"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(extra: Any, message: str) -> None:
    with pytest.raises(RequestRefused, match=re.escape(message)):
        responses.read({"input": "hi", **extra}, None, EMPTY)


def test_a_refusal_in_a_stream_is_read_as_an_error_by_every_client() -> None:
    sent = responses.error_event(RequestRefused("no", status=404, code="c", parameter="p"))
    head, data = sent.decode().removesuffix("\n\n").split("\n")
    error = {"message": "no", "type": "not_found_error", "param": "p", "code": "c"}
    assert head == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        **{"type": "error", "sequence_number": 0, "error": error},
        **{"message": "no", "param": "p", "code": "c"},
    }
