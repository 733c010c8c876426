"""The tiny tokenizer agrees with rendering turn by turn, with VeRL's builder and with VeRL's parser."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("verl")

from tiny_model import CALCULATOR, ArithmeticTask, conversation
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.utils.tokenizer.continuous_token import QwenContinuousTokenBuilder
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from aworld_train.episode.message import Message
from aworld_train.rollout.template import ChatTemplate
from tests.models import shipped_tokenizer

TOKENIZER = shipped_tokenizer()
TASK = ArithmeticTask("12.5*(3-1)", "25")


def builder() -> Any:
    return create_continuous_token_builder(TOKENIZER, hf_model_type="qwen3")


def assistant_turns(task: ArithmeticTask) -> list[list[int]]:
    """The ids that the assistant samples in its two turns."""
    call = json.dumps({"name": "calculator", "arguments": {"expression": task.expression}})
    texts = (f"<tool_call>\n{call}\n</tool_call><|im_end|>", f"<answer>{task.value}</answer><|im_end|>")
    return [TOKENIZER.encode(text) for text in texts]


def prompt(task: ArithmeticTask) -> list[int]:
    ids: list[int] = TOKENIZER.apply_chat_template(
        conversation(task, with_tool=True)[:1],
        tools=[CALCULATOR],
        add_generation_prompt=True,
        return_dict=False,
    )
    return ids


def test_the_qwen_builder_is_chosen_and_accepts_the_tokenizer() -> None:
    assert type(builder()) is QwenContinuousTokenBuilder


def template() -> ChatTemplate:
    return ChatTemplate(TOKENIZER, [TOKENIZER.eos_token_id])


def read(messages: list[dict[str, Any]]) -> list[Message]:
    return [Message.read(message) for message in messages]


def continued(history: list[dict[str, Any]], new: list[dict[str, Any]], sampled: list[int]) -> list[int]:
    return template().continuation(
        read(history), read(new), [CALCULATOR], sampled, ended=True, tools_key="calculator"
    )


def test_going_on_turn_by_turn_gives_the_tokenised_conversation() -> None:
    messages = conversation(TASK, with_tool=True)
    call, answer = assistant_turns(TASK)
    ids = template().initial(read(messages[:1]), [CALCULATOR])
    assert ids == prompt(TASK)
    ids += call
    ids += continued(messages[:2], messages[2:3], call)
    whole = TOKENIZER.apply_chat_template(messages, tools=[CALCULATOR], tokenize=False)
    assert ids + answer + TOKENIZER.encode("\n") == TOKENIZER.encode(whole)


def test_several_results_and_a_following_question_go_on_as_well() -> None:
    results = [{"role": "tool", "content": content} for content in "12"]
    new = [*results, {"role": "user", "content": "And 1+1?"}]
    call, _ = assistant_turns(TASK)
    ids = prompt(TASK) + call
    ids += continued(conversation(TASK, with_tool=True)[:2], new, call)
    messages = [*conversation(TASK, with_tool=True)[:2], *new]
    text = TOKENIZER.apply_chat_template(
        messages, tools=[CALCULATOR], tokenize=False, add_generation_prompt=True
    )
    assert ids == TOKENIZER.encode(text)


def test_verls_hermes_parser_reads_the_call_from_the_ids() -> None:
    call, answer = assistant_turns(TASK)

    async def parse(ids: list[int]) -> tuple[str, list[Any]]:
        return await ToolParser.get_tool_parser("hermes", TOKENIZER).extract_tool_calls(ids)

    _, (found,) = asyncio.run(parse(call))
    assert found.name == "calculator"
    assert json.loads(found.arguments) == {"expression": TASK.expression}
    text, none = asyncio.run(parse(answer))
    assert none == []
    assert text.removesuffix("<|im_end|>") == "<answer>25</answer>"
