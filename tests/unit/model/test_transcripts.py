"""Transcripts: the same ids as tokenising the rendered text, and a mask on what the assistant wrote."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from aworld_train.model import tokenizer as tiny_tokenizer
from aworld_train.model.transcripts import (
    CALCULATOR,
    CHARACTERS,
    ArithmeticTask,
    TranscriptEncoder,
    conversation,
    expression_in,
)

TOKENIZER = tiny_tokenizer.build()
ENCODER = TranscriptEncoder(TOKENIZER)

written = st.text(alphabet=CHARACTERS, min_size=1, max_size=20)
tasks = st.builds(ArithmeticTask, written, written)


@settings(deadline=None)
@given(tasks, st.booleans())
def test_a_transcript_is_the_tokenised_conversation(task: ArithmeticTask, with_tool: bool) -> None:
    messages = conversation(task, with_tool=with_tool)
    whole = TOKENIZER.apply_chat_template(messages, tools=[CALCULATOR])["input_ids"]
    assert ENCODER.encode(task, with_tool=with_tool).ids == whole


@settings(deadline=None)
@given(tasks)
def test_the_mask_covers_the_assistants_turns_with_their_ends_and_nothing_else(task: ArithmeticTask) -> None:
    episode = ENCODER.encode(task, with_tool=True)
    assert len(episode.mask) == len(episode.ids)
    masked = TOKENIZER.decode([i for i, m in zip(episode.ids, episode.mask, strict=True) if m])
    assert masked == (
        f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{task.expression}"}}}}\n'
        f"</tool_call><|im_end|><answer>{task.value}</answer><|im_end|>"
    )
    guess = ENCODER.encode(task, with_tool=False)
    masked = TOKENIZER.decode([i for i, m in zip(guess.ids, guess.mask, strict=True) if m])
    assert masked == f"<answer>{task.value}</answer><|im_end|>"


@settings(deadline=None)
@given(tasks)
def test_the_prompt_and_the_tool_turn_are_what_stands_around_the_assistants_turns(
    task: ArithmeticTask,
) -> None:
    episode = ENCODER.encode(task, with_tool=True)
    prompt = ENCODER.prompt(task.expression)
    assert episode.ids[: len(prompt)] == prompt
    assert prompt[: len(ENCODER.preamble)] == ENCODER.preamble
    end_of_call = episode.mask.index(0, len(prompt))
    between = episode.ids[end_of_call : episode.mask.index(1, end_of_call)]
    assert between == ENCODER.tool_turn(task.value)


@settings(deadline=None)
@given(written)
def test_the_expression_is_read_back_from_the_question(expression: str) -> None:
    question = conversation(ArithmeticTask(expression, "1"), with_tool=False)[0]["content"]
    assert expression_in(question) == expression


@pytest.mark.parametrize("question", ["What is love?", "What is 1+1", "How much is 1+1?", "What is ?", ""])
def test_other_questions_hold_no_expression(question: str) -> None:
    assert expression_in(question) is None
