"""The tiny model's tokenizer: short episodes, any text, and markup that is visible to parsers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from small_models import MARKUP, SPECIAL, save_model
from tiny_model import CALCULATOR, ArithmeticTask, conversation, make_tokenizer

from tests.models import shipped_tokenizer, tiny_qwen3_of

TOKENIZER = shipped_tokenizer()
CHARACTERS = "0123456789.+-*/()"
EPISODE = conversation(ArithmeticTask("48/2", "24"), with_tool=True)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


@settings(deadline=None)
@given(st.text())
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    assert TOKENIZER.decode(encode(text)) == text


@settings(deadline=None)
@given(st.text(alphabet=CHARACTERS, min_size=1))
def test_an_expression_has_one_token_per_character_wherever_it_stands(expression: str) -> None:
    ids = encode(expression)
    assert len(ids) == len(expression)
    for before, after in (("What is ", "?"), ('"', '"}}\n'), ("<answer>", "</answer>"), ("x", "x")):
        assert encode(before + expression + after) == encode(before) + ids + encode(after)


def test_the_prompt_has_at_most_45_tokens_and_the_episode_at_most_100() -> None:
    prompt = TOKENIZER.apply_chat_template(EPISODE[:1], tools=[CALCULATOR], add_generation_prompt=True)
    episode = TOKENIZER.apply_chat_template(EPISODE, tools=[CALCULATOR])
    assert len(prompt["input_ids"]) <= 45
    assert len(episode["input_ids"]) <= 100


def test_a_line_break_is_one_token_alone_and_after_the_end_of_a_turn() -> None:
    (line_break,) = encode("\n")
    assert encode("<|im_end|>\n<|im_start|>") == [
        *encode("<|im_end|>"),
        line_break,
        *encode("<|im_start|>"),
    ]
    assert encode("?\n\nA") == [*encode("?"), line_break, line_break, *encode("A")]


@pytest.mark.parametrize("token", MARKUP)
def test_markup_is_one_token_that_decoding_keeps(token: str) -> None:
    (only,) = encode(token)
    assert TOKENIZER.decode([only], skip_special_tokens=True) == token


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_one_token_that_decoding_can_leave_out(token: str) -> None:
    (only,) = encode(token)
    assert TOKENIZER.decode([only], skip_special_tokens=True) == ""
    assert TOKENIZER.decode([only]) == token


def test_a_turn_ends_the_sequence_and_padding_is_something_else() -> None:
    assert TOKENIZER.eos_token == "<|im_end|>"
    assert TOKENIZER.pad_token == "<|endoftext|>"
    assert TOKENIZER.unk_token is None


def test_it_is_the_one_that_is_made() -> None:
    made = make_tokenizer()
    assert made.get_vocab() == TOKENIZER.get_vocab()
    assert made.chat_template == TOKENIZER.chat_template
    assert json.loads(made.backend_tokenizer.to_str()) == json.loads(TOKENIZER.backend_tokenizer.to_str())


def test_a_saved_model_directory_loads_it_unchanged(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_model(tiny_qwen3_of(TOKENIZER), TOKENIZER, tmp_path)
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    text = TOKENIZER.apply_chat_template(EPISODE, tools=[CALCULATOR], tokenize=False)
    assert loaded.apply_chat_template(EPISODE, tools=[CALCULATOR], tokenize=False) == text
    assert loaded.encode(text) == encode(text)
    assert (loaded.eos_token_id, loaded.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)
    assert loaded.decode(encode("<answer>"), skip_special_tokens=True) == "<answer>"
