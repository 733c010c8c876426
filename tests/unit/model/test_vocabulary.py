"""A model's tokens are read from its files as its tokenizer numbers them."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from aworld_train.model.files import vocabulary_of
from aworld_train.model.tiny import SHIPPED


def test_the_tokens_are_those_of_the_loaded_tokenizer() -> None:
    assert vocabulary_of(SHIPPED) == AutoTokenizer.from_pretrained(SHIPPED).get_vocab()


def test_pieces_with_scores_are_numbered_in_their_order(tmp_path: Path) -> None:
    content = {
        "model": {"vocab": [["<unk>", 0.0], ["a", -1.5]]},
        "added_tokens": [{"content": "<end>", "id": 7}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert vocabulary_of(tmp_path) == {"<unk>": 0, "a": 1, "<end>": 7}


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"model": {}}', '{"model": 1}'])
def test_a_folder_without_them_has_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    assert vocabulary_of(tmp_path) is None
