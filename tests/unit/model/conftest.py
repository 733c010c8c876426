from pathlib import Path

import pytest
from huggingface_hub import constants

from aworld_train.model import tokenizer as tiny_tokenizer


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the hub in which there is the tokenizer of ``some/model``."""
    model = tmp_path / "hub" / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    tiny_tokenizer.build().save_pretrained(model / "snapshots" / "abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
