"""The calls that smolagents writes into a turn's text are read as calls, and nothing else is."""

import pytest

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.model_gateway import chat
from aworld_train.rollout.model_gateway.chat import split_calls

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [None, "é'"]}}}
CODE = {"id": "c2", "type": "function", "function": {"name": "python_interpreter", "arguments": "print(1)"}}


@pytest.mark.parametrize("text", ["", "I add.", "Calling tools:\nlater"])
def test_written_calls_are_calls(text: str) -> None:
    found = split_calls(f"{text}\nCalling tools:\n{[CALL]}")
    assert found == (text, (ToolCall("add", '{"a": 1, "b": [null, "\\u00e9\'"]}', "c1"),))


def test_a_call_may_lack_an_identifier_and_have_text_as_arguments() -> None:
    calls = [
        {"function": {"name": "say", "arguments": "x"}},
        {**CODE, "function": {"name": "python_interpreter", "arguments": {}}},
    ]
    found = split_calls(f"a\n\nCalling tools:\n{[*calls, CODE]}")
    assert found == ("a", (ToolCall("say", "x"), ToolCall("python_interpreter", "{}", "c2")))


def test_a_text_is_read_up_to_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    content = f"a\nCalling tools:\n{[CALL]}"
    monkeypatch.setattr(chat, "_MAX_WRITTEN_CHARS", len(content))
    assert split_calls(content) != (content, ())
    assert split_calls(f" {content}") == (f" {content}", ())


def test_the_code_of_a_code_agent_is_no_call() -> None:
    assert split_calls(f"<code>print(1)</code>\nCalling tools:\n{[CODE]}") == ("<code>print(1)</code>", ())


@pytest.mark.parametrize(
    "content",
    [
        "Calling tools: none",
        "Calling tools:\n[",
        "Calling tools:\n[1]",
        "Calling tools:\n[{}]",
        "Calling tools:\n[{'function': 1}]",
        "Calling tools:\n[__import__('os')]",
        "Calling tools:\n" + "[" * 100_000,
        f"Calling tools:\n{[CALL]} and more",
    ],
)
def test_other_text_stays_text(content: str) -> None:
    assert split_calls(content) == (content, ())
