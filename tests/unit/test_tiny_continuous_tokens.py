"""VeRL's agent loop and the tiny tokenizer agree: what is merged turn by turn is the tokenised conversation."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("verl")

from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.utils.tokenizer.continuous_token import QwenContinuousTokenBuilder
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from aworld_train.model import tokenizer as tiny_tokenizer
from aworld_train.model.transcripts import CALCULATOR, Task, TranscriptEncoder, conversation

TOKENIZER = tiny_tokenizer.build()
ENCODER = TranscriptEncoder(TOKENIZER)
TASK = Task("12.5*(3-1)", "25")


def builder() -> Any:
    return create_continuous_token_builder(TOKENIZER, hf_model_type="qwen3")


def assistant_turns(task: Task) -> list[list[int]]:
    """The ids that the assistant samples in its two turns."""
    episode = ENCODER.encode(task, with_tool=True)
    first = episode.mask.index(1)
    first_end = episode.mask.index(0, first)
    second = episode.mask.index(1, first_end)
    return [episode.ids[first:first_end], episode.ids[second : episode.mask.index(0, second)]]


def test_the_qwen_builder_is_chosen_and_accepts_the_tokenizer() -> None:
    assert type(builder()) is QwenContinuousTokenBuilder


def test_merging_turn_by_turn_gives_the_tokenised_conversation() -> None:
    messages = conversation(TASK, with_tool=True)
    tokens = builder()
    call, answer = assistant_turns(TASK)
    ids = tokens.build_initial_tokens(messages[:1], tools=[CALCULATOR])
    assert ids == ENCODER.prompt(TASK.expression)
    ids = tokens.merge_assistant_tokens(ids, call).token_ids
    merged = tokens.merge_context_tokens(messages[:2], messages[:3], ids, tools=[CALCULATOR])
    assert len(merged.inserted_token_ids) == 1
    ids = tokens.merge_assistant_tokens(merged.token_ids, answer).token_ids
    whole = TOKENIZER.apply_chat_template(messages, tools=[CALCULATOR], tokenize=False)
    assert ids + TOKENIZER.encode("\n") == TOKENIZER.encode(whole)


def test_several_results_and_a_following_question_merge_as_well() -> None:
    messages = [*conversation(TASK, with_tool=True)[:2], *({"role": "tool", "content": c} for c in "12")]
    more = [*messages, {"role": "user", "content": "And 1+1?"}]
    call, _ = assistant_turns(TASK)
    ids = builder().merge_assistant_tokens(ENCODER.prompt(TASK.expression), call).token_ids
    merged = builder().merge_context_tokens(more[:2], more, ids, tools=[CALCULATOR]).token_ids
    text = TOKENIZER.apply_chat_template(more, tools=[CALCULATOR], tokenize=False, add_generation_prompt=True)
    assert merged == TOKENIZER.encode(text)


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
