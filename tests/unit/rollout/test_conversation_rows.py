"""A conversation in a file is trained on as the same episode would be."""

import json
from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.rollout.conversation_rows import (
    Conversation,
    UnusableConversation,
    conversation_rows,
    read_conversation,
)
from aworld_train.rollout.messages import ChatRequest
from aworld_train.rollout.token_episode import TokenEpisode
from tests import templates
from tests.templates import ScriptedModel, cut_up, template
from tests.unit.rollout.test_exactness import NO_LIMITS, TOOLS

CALL = '<tool_call>\n{"name": "calc", "arguments": {"a": 1}}\n</tool_call>'
QUESTION = Message("user", "What is it? <|im_end|>")
BODY: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call00001", "type": "function", "function": {"name": "calc", "arguments": {"a": 1}}}
            ],
        },
        {"role": "tool", "content": "4", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "It is 4."},
    ],
    "tools": TOOLS,
}


async def played(family: str, script: list[str]) -> tuple[list[Any], Conversation]:
    """The rows of an episode in which the model says ``script``, and its messages."""
    thought = "<think>\nhm\n</think>\n\n" if family == "chatml_thinking" else ""
    turns = iter([thought + turn for turn in script])

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, next(turns), 0), tokenizer.eos_token_id], True

    episode = TokenEpisode(ScriptedModel(family, draw), NO_LIMITS)
    history = [QUESTION]
    for _ in script:
        completion = await episode.complete("agent", ChatRequest(list(history), TOOLS))
        history.append(completion.message)
        history += [
            Message("tool", "4", call_id=call.call_id, name=call.name) for call in completion.tool_calls
        ]
        if not completion.tool_calls:
            history.append(Message("user", "And then?"))
    return episode.agents["agent"].graph.rows(), Conversation(history, TOOLS)


@pytest.mark.parametrize("family", list(templates.ENDS))
@pytest.mark.parametrize("script", [["the tool said so"], ["the answer", "was asked", "so"]])
async def test_turns_of_text_have_the_ids_and_the_mask_of_their_episode(
    family: str, script: list[str]
) -> None:
    rows, conversation = await played(family, script)
    rendered = list(conversation_rows(template(family), conversation))
    assert [row.ids for row in rendered] == [[*row.prompt, *row.response] for row in rows]
    assert [row.mask for row in rendered] == [[0] * len(row.prompt) + row.mask for row in rows]


@pytest.mark.parametrize("family", ["chatml_tools", "chatml_thinking"])
async def test_tool_calls_have_the_ids_and_the_mask_of_their_episode(family: str) -> None:
    rows, conversation = await played(family, [CALL, "the answer", "so"])
    [row], [rendered] = rows, conversation_rows(template(family), conversation)
    assert rendered.ids == [*row.prompt, *row.response]
    assert rendered.mask == [0] * len(row.prompt) + row.mask
    assert sum(rendered.mask) < len(row.response)


def test_the_turns_of_a_conversation_are_what_is_trained() -> None:
    [row] = conversation_rows(template("chatml_tools"), read_conversation(BODY))
    written = [token for token, own in zip(row.ids, row.mask, strict=True) if own]
    text = templates.tokenizer("chatml_tools").decode(written)
    assert text == f"{CALL}<|im_end|>It is 4.<|im_end|>"


def test_a_row_begins_anew_where_the_template_cannot_continue_a_turn() -> None:
    messages = [*BODY["messages"], {"role": "assistant", "content": "Really."}]
    rows = list(conversation_rows(template("chatml_tools"), read_conversation({"messages": messages})))
    decoded = templates.tokenizer("chatml_tools").decode
    written = ["".join(decoded([t]) for t, own in zip(*row, strict=True) if own) for row in rows]
    assert written == [f"{CALL}<|im_end|>It is 4.<|im_end|>", "Really.<|im_end|>"]


def test_sharegpt_is_the_same_conversation() -> None:
    turns = [
        ("human", "What is it?"),
        ("function_call", json.dumps({"name": "calc", "arguments": {"a": 1}})),
        ("observation", "4"),
        ("gpt", "It is 4."),
    ]
    shared = {
        "system": "Be brief.",
        "conversations": [{"from": role, "value": text} for role, text in turns],
        "tools": json.dumps(TOOLS),
    }
    chatml = template("chatml_tools")
    assert list(conversation_rows(chatml, read_conversation(shared))) == list(
        conversation_rows(chatml, read_conversation(BODY))
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"text": "hello"}, "neither OpenAI's form nor ShareGPT's"),
        ({"messages": "hello"}, "neither OpenAI's form nor ShareGPT's"),
        ({"messages": [{"role": "robot", "content": "hello"}]}, "messages\\[0\\].role"),
        ({"conversations": [{"from": "robot", "value": "hello"}]}, "neither OpenAI's form nor ShareGPT's"),
        ({"messages": [{"role": "user", "content": "hello"}]}, "the assistant says nothing"),
        ({"messages": [{"role": "assistant", "content": "hello"}]}, "the assistant says nothing"),
    ],
)
def test_what_cannot_be_trained_is_said(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableConversation, match=reason):
        list(conversation_rows(template("chatml_tools"), read_conversation(data)))
