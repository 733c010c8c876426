"""The chat template: Qwen3's layout, and later messages never change the text of earlier ones."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")

from tiny_model import CALCULATOR, ArithmeticTask, conversation

from tests.models import shipped_tokenizer
from tests.properties import examples

TOKENIZER = shipped_tokenizer()
Message = dict[str, Any]


def render(
    messages: list[Message], *, tools: list[Message] | None = None, generation_prompt: bool = False
) -> str:
    return TOKENIZER.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=generation_prompt
    )


def call(arguments: Any, name: str = "calculator") -> Message:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_an_episode_with_a_tool_call_is_rendered_as_qwen3_does() -> None:
    signature = json.dumps(CALCULATOR)
    assert render(conversation(ArithmeticTask("48/2", "24"), with_tool=True), tools=[CALCULATOR]) == (
        "<|im_start|>system\n# Tools\n\nThese functions can be called, one JSON signature per line:\n"
        f"<tools>\n{signature}\n</tools>\n\n"
        "A call is a JSON object with the name of the function and its arguments:\n"
        '<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nWhat is 48/2?<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "48/2"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n24\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<answer>24</answer><|im_end|>\n"
    )


def test_without_tools_there_is_no_system_turn_of_its_own() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert render(messages, generation_prompt=True) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_comes_first_with_and_without_tools() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert render(messages).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    with_tools = render(messages, tools=[CALCULATOR])
    assert with_tools.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")
    assert with_tools.count("Be brief.") == 1


def test_results_of_one_turn_share_one_user_turn() -> None:
    messages = [
        {"role": "user", "content": "Both"},
        {"role": "assistant", "content": "", "tool_calls": [call({"a": 1}), call({"a": 2})]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "user", "content": "Thanks"},
    ]
    assert render(messages).endswith(
        '<tool_call>\n{"name": "calculator", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "calculator", "arguments": {"a": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
        "<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n"
    )


def test_arguments_render_alike_as_an_object_and_as_json_text() -> None:
    def turn(arguments: Any) -> str:
        return render([{"role": "assistant", "content": "So:", "tool_calls": [call(arguments)]}])

    assert turn({"expression": "1+1"}) == turn('{"expression": "1+1"}')
    assert "So:\n<tool_call>" in turn({})


def test_content_may_be_a_list_of_text_parts() -> None:
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "1?"}]}
    ]
    assert render(parts) == render([{"role": "user", "content": "What is 1?"}])


texts = st.text(alphabet="ab1+?\n é", max_size=8)
assistants = st.builds(
    lambda content, calls: {"role": "assistant", "content": content, "tool_calls": calls},
    texts,
    st.lists(st.builds(call, st.dictionaries(st.sampled_from("xy"), texts, max_size=2)), max_size=2),
)
others = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), texts
)
conversations = st.builds(
    lambda head, turns: head + [message for turn in turns for message in turn],
    st.lists(st.builds(lambda text: {"role": "system", "content": text}, texts), max_size=1),
    st.lists(
        st.builds(
            lambda messages, reply: [*messages, reply], st.lists(others, min_size=1, max_size=3), assistants
        ),
        min_size=1,
        max_size=4,
    ),
)


@examples(40)
@given(conversations, st.booleans())
def test_the_prompt_of_every_assistant_turn_is_a_prefix_of_the_whole(
    messages: list[Message], with_tools: bool
) -> None:
    tools = [CALCULATOR] if with_tools else None
    whole = render(messages, tools=tools)
    whole_ids = TOKENIZER.encode(whole, add_special_tokens=False)
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(messages[:at], tools=tools, generation_prompt=True)
            assert whole.startswith(prompt)
            ids = TOKENIZER.encode(prompt, add_special_tokens=False)
            assert whole_ids[: len(ids)] == ids
