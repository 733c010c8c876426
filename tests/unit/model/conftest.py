from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.models import shipped_tokenizer


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the hub in which there is the tokenizer of ``some/model``."""
    model = tmp_path / "hub" / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    shipped_tokenizer().save_pretrained(model / "snapshots" / "abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
