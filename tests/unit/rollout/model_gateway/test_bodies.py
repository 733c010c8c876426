"""Whatever is sent, there is an answer or a refusal that says why, and never a failure."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.messages import Completion
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.chat import _READ as CHAT
from aworld_train.rollout.model_gateway.sampling import NEUTRAL
from tests.gateways import rollout_session_in_thread
from tests.properties import examples

ANSWER = Completion(
    "Two.", tool_calls=(ToolCall("a", "[", "c"),), tokens=[1], logprobs=[-1.0], texts=["Two."]
)
PATHS = ["chat/completions", "responses", "messages"]
WORDS = [
    *CHAT, *NEUTRAL, "arguments", "content", "function", "id", "include", "input", "input_schema", "instructions",
    "max_output_tokens", "name", "output", "parameters", "reasoning", "role", "stop_sequences", "summary", "system",
    "text", "thinking", "tool_call_id", "tool_calls", "tool_use_id", "type",
]  # fmt: skip
VALUES = [
    "assistant", "auto", "function", "function_call", "function_call_output", "input_text", "json", "message", "none",
    "reasoning", "system", "text", "thinking", "tool", "tool_result", "tool_use", "user",
]  # fmt: skip

anything: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
body: Any = st.dictionaries(st.sampled_from(WORDS), anything, max_size=6)

FUNCTION: Any = {"name": "a", "description": "b", "parameters": {"type": "object"}}
MESSAGES: Any = [
    {"role": "system", "content": [{"type": "text", "text": "a"}]},
    {"role": "user", "content": "b"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "c",
        "tool_calls": [{"id": "d", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "d", "content": "e"},
]
ITEMS: Any = [
    {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}], "content": [{"text": "c"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "d"}]},
    {"type": "function_call", "call_id": "e", "name": "a", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "e", "output": "f"},
]
BLOCKS: Any = [
    {"role": "user", "content": "a"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "b", "signature": ""},
            {"type": "text", "text": "c"},
            {"type": "tool_use", "id": "d", "name": "a", "input": {"x": 1}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "d", "content": [{"type": "text", "text": "e"}]}],
    },
]
SAMPLING: Any = {"temperature": 1, "top_p": 0.5, "top_k": 3, "stream": True, "model": "m"}
RIGHT: Any = {
    "chat/completions": SAMPLING
    | {
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "stop": ["x"],
        "max_tokens": 1,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "parallel_tool_calls": True,
    },
    "responses": SAMPLING
    | {
        "input": ITEMS,
        "instructions": "a",
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": "none",
        "max_output_tokens": 1,
        "text": {"format": {"type": "text"}},
        "include": ["message.output_text.logprobs"],
    },
    "messages": SAMPLING
    | {
        "messages": BLOCKS,
        "system": [{"type": "text", "text": "a"}],
        "tools": [{"name": "a", "input_schema": {}}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["x"],
        "max_tokens": 1,
        "output_config": {"effort": "low"},
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in inner:
        yield (*path, step)
        yield from places(one, (*path, step))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """``value`` with another value at the end of ``path``."""
    if not path:
        return by
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], by)
    return copied


@pytest.fixture(scope="module")
def gateway() -> Iterator[httpx.Client]:
    with (
        rollout_session_in_thread(ANSWER) as (session, _),
        httpx.Client(base_url=session.address(), timeout=120) as http,
    ):
        yield http


def check(response: httpx.Response) -> None:
    if response.status_code == 200:
        assert response.content
        return
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["message"] and error["type"] == "invalid_request_error"
    assert error["param"] or error["code"].startswith("invalid_")


@given(st.dictionaries(st.text(max_size=3), anything))
@examples(300)
def test_a_body_is_what_json_makes_of_it(sent: Any) -> None:
    for body in (json.dumps(sent), json.dumps(sent, ensure_ascii=False)):
        assert repr(fields.parse_body(body.encode())) == repr(json.loads(body))


@pytest.mark.parametrize(
    "value",
    ["1e999", "-1e999", "NaN", "1" + "0" * 400, "-0", "-0.0", "5e-324", '"\\ud83d\\ude00"', "1.0", "1E2"],
)
def test_numbers_and_pairs_are_what_json_makes_of_them(value: str) -> None:
    body = f'{{"a": {value}}}'
    assert repr(fields.parse_body(body.encode())) == repr(json.loads(body))


@pytest.mark.parametrize("path", PATHS)
@given(sent=body)
@examples(200)
def test_any_object_is_answered_or_refused(gateway: httpx.Client, path: str, sent: Any) -> None:
    check(gateway.post(path, content=json.dumps(sent).encode()))


@pytest.mark.parametrize("path", PATHS)
def test_the_right_bodies_are_answered(gateway: httpx.Client, path: str) -> None:
    assert gateway.post(path, json=RIGHT[path]).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@given(data=st.data(), by=anything)
@examples(250)
def test_a_right_body_with_one_value_replaced_is_answered_or_refused(
    gateway: httpx.Client, path: str, data: Any, by: Any
) -> None:
    place = data.draw(st.sampled_from(sorted(places(RIGHT[path]), key=str)))
    check(gateway.post(path, content=json.dumps(replaced(RIGHT[path], place, by)).encode()))


@pytest.mark.parametrize("path", PATHS)
@given(sent=anything.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=50))
@examples(50)
def test_any_bytes_are_answered_or_refused(gateway: httpx.Client, path: str, sent: bytes) -> None:
    check(gateway.post(path, content=sent))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("depth", [50, 200, 900, 990, 5000])
@pytest.mark.parametrize("where", ["tools", "messages", "input", "text", "metadata", "logit_bias"])
def test_a_deep_body_is_answered_or_refused(gateway: httpx.Client, path: str, depth: int, where: str) -> None:
    user = [{"role": "user", "content": "hi"}]
    body = {"messages": user, "input": "hi", where: None}
    sent = json.dumps(body).replace("null", '{"a":' * depth + "1" + "}" * depth)
    check(gateway.post(path, content=sent.encode()))


@pytest.mark.parametrize("depth", [50, 500, 950])
def test_deep_arguments_are_answered_or_refused(gateway: httpx.Client, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    use = f'{{"role": "assistant", "content": [{{"type": "tool_use", "name": "a", "input": {deep}}}]}}'
    sent = f'{{"messages": [{use}, {{"role": "user", "content": "hi"}}]}}'
    check(gateway.post("messages", content=sent.encode()))
