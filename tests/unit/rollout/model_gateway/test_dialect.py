"""The same conversation is the same request, whatever the dialect it is written in."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aworld_train.rollout.messages import Completion, Message, ToolCall
from aworld_train.rollout.model_gateway import anthropic, chat, responses
from aworld_train.rollout.model_gateway.dialect import NO_SURROUNDINGS, Dialect, ParsedRequest
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
    return dialect.read(json.loads(json.dumps(body)), None, NO_SURROUNDINGS).request


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
        last = dialect.read(json.loads(json.dumps(write(earlier, once))), None, NO_SURROUNDINGS)
        alone, with_last = (
            dialect.read(json.loads(body), earlier_request, NO_SURROUNDINGS)
            for earlier_request in (None, last)
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
