"""The same conversation is the same request, whatever the dialect it is written in."""

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import Completion, RequestRefused
from aworld_train.rollout.model_gateway import anthropic, chat, completions, responses, sampling
from aworld_train.rollout.model_gateway.dialect import (
    EMPTY,
    Dialect,
    ParsedRequest,
    Surroundings,
    encode,
    event,
    new_id,
    token_logprobs,
)
from aworld_train.rollout.response_constraints import RequestRules
from tests.gateways import rollout_session
from tests.properties import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
objects: Any = st.dictionaries(
    texts, st.recursive(st.integers() | texts | st.none(), st.lists, max_leaves=4), max_size=3
)
calls = st.builds(lambda name, arguments: (name, json.dumps(arguments, ensure_ascii=False)), words, objects)
# One turn: what the user says, and the assistant's answers to it, each with calls that get a result, but the last.
answers = st.tuples(texts, texts, st.lists(st.tuples(calls, texts), min_size=1, max_size=3))
turns = st.tuples(texts, st.lists(answers, max_size=2), words, texts)
conversations = st.tuples(texts, st.lists(turns, max_size=3), texts)
tools_offered = st.lists(st.tuples(words, texts, objects), max_size=2)


def messages_of(system: str, turns: list[Any], last: str) -> list[Message]:
    found = [Message("system", system)] if system else []
    number = 0
    for user, answers, end, thought in turns:
        found.append(Message("user", user))
        for text, reasoning, calls in answers:
            ids = [f"call_{number + index}" for index in range(len(calls))]
            number += len(calls)
            parts = [(ToolCall(*call, one), result) for (call, result), one in zip(calls, ids, strict=True)]
            found.append(Message("assistant", text, tuple(call for call, _ in parts), reasoning=reasoning))
            found += [Message("tool", result, call_id=call.call_id, name=call.name) for call, result in parts]
        found.append(Message("assistant", end, reasoning=thought))
    return [*found, Message("user", last)]


def in_chat(messages: list[Message], tools: list[Any]) -> dict[str, Any]:
    functions = [
        {"name": name, "description": description, "parameters": form} for name, description, form in tools
    ]
    return {
        "messages": [
            one.for_chat() | ({"reasoning_content": one.reasoning} if one.reasoning else {})
            for one in messages
        ],
        "tools": [{"type": "function", "function": function} for function in functions],
        "max_completion_tokens": 9,
    }


def in_items(messages: list[Message], tools: list[Any]) -> dict[str, Any]:
    items: list[Any] = []
    for one in messages:
        if one.role == "tool":
            items.append({"type": "function_call_output", "call_id": one.call_id, "output": one.content})
        elif one.role == "assistant":
            completion = Completion(one.content, one.reasoning, one.tool_calls)
            items += responses.answer([completion], ASKED, "m")["output"]
        else:
            items.append({"role": one.role, "content": [{"type": "input_text", "text": one.content}]})
    return {
        "input": items,
        "tools": [
            {"type": "function", "name": name, "description": description, "parameters": form, "strict": True}
            for name, description, form in tools
        ],
        "max_output_tokens": 9,
    }


def in_blocks(messages: list[Message], tools: list[Any]) -> dict[str, Any]:
    content: list[Any] = []
    for one in messages:
        if one.role == "system":
            continue
        if one.role == "assistant":
            completion = Completion(one.content, one.reasoning, one.tool_calls)
            block = {"role": "assistant", "content": anthropic.answer([completion], ASKED, "m")["content"]}
        elif one.role == "tool":
            result = {"type": "tool_result", "tool_use_id": one.call_id, "content": one.content}
            block = {"role": "user", "content": [result]}
            if (
                content
                and content[-1]["role"] == "user"
                and content[-1]["content"][0]["type"] == "tool_result"
            ):
                content[-1]["content"].append(result)
                continue
        else:
            block = {"role": "user", "content": [{"type": "text", "text": one.content}]}
        content.append(block)
    system = messages[0].content if messages[0].role == "system" else None
    return {
        "system": system,
        "messages": content,
        "tools": [{"name": name, "description": about, "input_schema": form} for name, about, form in tools],
        "max_tokens": 9,
    }


ASKED = ParsedRequest(chat.read({"messages": [{"role": "user", "content": ""}]}).request)


def read(dialect: Dialect, body: dict[str, Any]) -> Any:
    return dialect.read(json.loads(json.dumps(body)), None, EMPTY).request


@given(conversations, tools_offered)
@examples(150)
def test_a_conversation_is_the_same_request_in_every_dialect(conversation: Any, tools: list[Any]) -> None:
    messages = messages_of(*conversation)
    in_chat_dialect = read(chat.DIALECT, in_chat(messages, tools))
    assert list(in_chat_dialect.messages) == messages
    assert read(responses.DIALECT, in_items(messages, tools)) == in_chat_dialect
    found = read(anthropic.DIALECT, in_blocks(messages, tools))
    assert found == in_chat_dialect


@given(conversations, conversations, st.integers(0, 9), tools_offered, tools_offered)
@examples(150)
def test_what_the_last_request_held_too_is_read_no_differently(
    before: Any, after: Any, common: int, once: list[Any], now: list[Any]
) -> None:
    earlier = messages_of(*before)
    messages = [*earlier[:common], *messages_of(*after)]
    for dialect, write in (
        (chat.DIALECT, in_chat),
        (responses.DIALECT, in_items),
        (anthropic.DIALECT, in_blocks),
    ):
        body = json.dumps(write(messages, now))
        last = dialect.read(json.loads(json.dumps(write(earlier, once))), None, EMPTY)
        alone, with_last = (
            dialect.read(json.loads(body), earlier_request, EMPTY) for earlier_request in (None, last)
        )
        assert repr(with_last.request) == repr(alone.request)


def test_messages_and_tools_that_were_read_before_are_the_same_objects() -> None:
    messages = messages_of("a", [("b", [("c", "d", [(("e", "{}"), "f")])], "g", "h")], "i")
    first = chat.read(json.loads(json.dumps(in_chat(messages, [("j", "k", {})]))))
    more = in_chat([*messages, Message("assistant", "l")], [("j", "k", {})])
    second = chat.read(json.loads(json.dumps(more)), first)
    pairs = zip(first.request.messages, second.request.messages, strict=False)
    assert all(one is other for one, other in pairs)
    assert second.request.tools is first.request.tools


def test_tools_that_only_python_takes_for_the_same_are_not() -> None:
    one, other = ([("a", "b", {"default": value})] for value in (1, True))
    first = chat.read(in_chat([Message("user", "c")], one))
    second = chat.read(in_chat([Message("user", "c")], other), first)
    assert second.request.tools[0]["function"]["parameters"] == {"default": True}
    assert second.request.tools[0]["function"]["parameters"]["default"] is True


def test_only_empty_descriptions_are_left_out_of_a_tools_schema() -> None:
    described = {"a": {"description": "b", "default": ""}, "description": {"type": "string"}}
    schema = {"properties": described, "anyOf": [{"description": "", "enum": [""]}], "description": ""}
    request = read(chat.DIALECT, in_chat([Message("user", "c")], [("d", "e", schema)]))
    assert request.tools[0]["function"]["parameters"] == {
        "properties": described,
        "anyOf": [{"enum": [""]}],
    }


@given(texts, texts, st.lists(calls | st.tuples(words, texts), max_size=3))
@examples(150)
def test_an_answer_comes_back_as_the_message_that_it_was(
    content: str, reasoning: str, calls: list[tuple[str, str]]
) -> None:
    tool_calls = tuple(
        ToolCall(name, arguments, f"c{index}") for index, (name, arguments) in enumerate(calls)
    )
    completion = Completion(content, reasoning, tool_calls)
    user: Any = {"role": "user", "content": "x"}
    message = chat.answer([completion], ASKED, "m")["choices"][0]["message"]
    items = responses.answer([completion], ASKED, "m")["output"]
    blocks = {"role": "assistant", "content": anthropic.answer([completion], ASKED, "m")["content"]}
    for found in (
        read(chat.DIALECT, {"messages": [message]}),
        read(responses.DIALECT, {"input": items}),
        read(anthropic.DIALECT, {"messages": [blocks, user]}),
    ):
        assert found.messages[0].key == completion.message.key
        assert found.messages[0].reasoning == reasoning
        assert [call.call_id for call in found.messages[0].tool_calls] == [
            call.call_id for call in tool_calls
        ]


def test_what_is_written_is_json_whatever_the_model_wrote() -> None:
    assert encode({"a": "é\u2028"}) == '{"a":"é\u2028"}'.encode()
    assert encode({"a": "\ud800é"}) == b'{"a":"\\ud800\\u00e9"}'
    assert event({"a": "\u2028\ud800"}, "b") == b'event: b\ndata: {"a":"\\u2028\\ud800"}\n\n'
    assert event({}) == b"data: {}\n\n"


def test_identifiers_differ_and_are_of_one_length() -> None:
    identifiers = {new_id("a_") for _ in range(50)}
    assert len(identifiers) == 50
    assert all(len(one.removeprefix("a_")) == 24 for one in identifiers)


def test_tokens_have_their_bytes_and_the_likely_ones_beside_them() -> None:
    texts, logprobs = ["é", "\ud800"], [-0.5, -1.5]
    one, other = (
        {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
        {"token": "\ud800", "logprob": -1.5, "bytes": [63]},
    )
    sampled = Completion("", tokens=[1, 2], logprobs=logprobs, texts=texts)
    assert token_logprobs(sampled) == [one | {"top_logprobs": []}, other | {"top_logprobs": []}]
    likely = Completion(
        "", logprobs=logprobs, texts=texts, top_logprobs=[[("é", -0.5), ("\ud800", -1.5)], []]
    )
    assert token_logprobs(likely) == [one | {"top_logprobs": [one, other]}, other | {"top_logprobs": []}]
    assert token_logprobs(Completion("", tokens=[1], logprobs=[-1.0])) == []


SAMPLING: Any = {"model": "m", "stream": True, "temperature": 1, "top_k": 1, "top_p": 1}
CHAT: Any = {
    "chat_template_kwargs": {},
    "function_call": "none",
    "functions": [],
    "logprobs": True,
    "max_tokens": 1,
}
CHAT |= {"max_completion_tokens": 1, "messages": [{"role": "user", "content": "x"}], "n": 1, "stop": "x"}
CHAT |= {
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "stream_options": {},
    "top_logprobs": 0,
}
CHAT |= {"tool_choice": "auto", "tools": []}
RESPONSES: Any = {
    "background": False,
    "chat_template_kwargs": {},
    "include": [],
    "input": "x",
    "instructions": "x",
}
RESPONSES |= {"max_output_tokens": 1, "parallel_tool_calls": True, "previous_response_id": "", "text": {}}
RESPONSES |= {"tool_choice": "auto", "tools": [], "top_logprobs": 0}
ANTHROPIC: Any = {
    "chat_template_kwargs": {},
    "max_tokens": 1,
    "messages": CHAT["messages"],
    "output_config": {},
}
ANTHROPIC |= {
    "output_format": {"type": "text"},
    "stop_sequences": [],
    "system": "x",
    "tool_choice": {},
    "tools": [],
}
TEXT: Any = {
    "logprobs": 0,
    "max_tokens": 1,
    "n": 1,
    "prompt": "x",
    "stop": "x",
    "stream_options": {},
    "suffix": "",
}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (chat.DIALECT, CHAT),
        (responses.DIALECT, RESPONSES),
        (anthropic.DIALECT, ANTHROPIC),
        (completions.DIALECT, TEXT),
    ],
)
def test_nothing_that_is_read_is_noted_as_doing_nothing(
    dialect: Dialect, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_ignored", set())
    dialect.read({**SAMPLING, **body, "seed": 1}, None, EMPTY)
    assert sampling._ignored == {"seed"}


@pytest.mark.parametrize("of_tool", [False, True])
@pytest.mark.parametrize("dialect", [chat.DIALECT, responses.DIALECT, anthropic.DIALECT])
def test_a_broken_image_is_refused_from_a_user_and_a_note_from_a_tool(
    dialect: Dialect, of_tool: bool
) -> None:
    part: Any = {"type": "image", "source": {"type": "base64", "data": "!!"}}
    item: Any = {"role": "user", "content": [part]}
    if of_tool and dialect is chat.DIALECT:
        item = {"role": "tool", "content": [part]}
    elif of_tool and dialect is responses.DIALECT:
        item = {"type": "function_call_output", "output": [part]}
    elif of_tool:
        item["content"] = [{"type": "tool_result", "content": [part]}]
    around = Surroundings(RequestRules(no_images=""))
    if of_tool:
        (message,) = dialect.read({dialect.history: [item]}, None, around).request.messages
        assert message.content.startswith("[image content, not shown: ")
    else:
        with pytest.raises(RequestRefused, match="its image was not taken"):
            dialect.read({dialect.history: [item]}, None, around)


@pytest.mark.parametrize(
    ("finish_reason", "in_chat", "status", "details"),
    [
        ("content_filter", "content_filter", "incomplete", {"reason": "content_filter"}),
        ("refusal", "stop", "completed", None),
    ],
)
async def test_an_outside_endpoint_s_filter_or_refusal_is_said_in_each_dialect_s_words(
    finish_reason: Any, in_chat: str, status: str, details: Any
) -> None:
    user = [{"role": "user", "content": "1+1?"}]
    requests = {
        "chat/completions": {"messages": user},
        "messages": {"messages": user, "max_tokens": 9},
        "responses": {"input": "1+1?"},
    }
    got = {}
    async with (
        rollout_session(Completion("No.", finish_reason=finish_reason)) as (session, _),
        aiohttp.ClientSession() as http,
    ):
        for path, body in requests.items():
            async with http.post(f"{session.address()}/{path}", json={"model": "m", **body}) as response:
                got[path] = await response.json()
    assert got["chat/completions"]["choices"][0]["finish_reason"] == in_chat
    assert got["messages"]["stop_reason"] == "refusal"
    assert (got["responses"]["status"], got["responses"]["incomplete_details"]) == (status, details)
