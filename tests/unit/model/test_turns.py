"""A run tells how the model's chat template continues turns, without loading transformers itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aworld_train.model.turns import end_tokens, try_turns
from tests.models import shipped_tokenizer


def test_a_model_s_chat_template_is_tried_in_another_process(tmp_path: Path) -> None:
    shipped_tokenizer().save_pretrained(tmp_path)
    assert (
        try_turns(str(tmp_path), {})
        == "The chat template continues each turn: an episode is one training row."
    )


def test_a_model_of_the_hub_is_tried_where_it_is_in_the_cache(hub: None) -> None:
    assert (
        try_turns("some/model", {})
        == "The chat template continues each turn: an episode is one training row."
    )
    assert try_turns("other/model", {}) is None


def test_a_model_that_is_not_here_or_cannot_be_loaded_is_not_tried(tmp_path: Path) -> None:
    assert try_turns("some/model", {}) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert try_turns(str(tmp_path), {}) is None


def test_the_check_is_started_without_transformers() -> None:
    code = "import sys; import aworld_train.model.turns; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("config", "ends"),
    [(None, ()), ({}, ()), ({"eos_token_id": 2}, (2,)), ({"eos_token_id": [3, 2]}, (3, 2))],
)
def test_a_turn_ends_with_the_tokens_of_the_model_s_folder(
    config: dict[str, Any] | None, ends: tuple[int, ...], tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert end_tokens(str(tmp_path)) == ends
