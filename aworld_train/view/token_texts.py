"""The texts of tokens, by the tokenizer of a run's model, where that is on this machine; else the page shows ids."""

import threading
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from aworld_train.errors import one_line
from aworld_train.recipe.interpolation import resolved
from aworld_train.training.recorded_run import RecordedRun

_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
_lock = threading.Lock()


def token_texts(run: RecordedRun, ids: Iterable[int]) -> tuple[dict[int, str] | None, str]:
    """The text of each id, and why there is none where it is None; a part of a character is U+FFFD."""
    folder = _model_folder(run)
    if folder is None:
        return None, "The run's model is not on this machine, so tokens are shown as ids."
    # Tokenizers of Hugging Face may not be used by two threads at once.
    with _lock:
        tokenizer = _tokenizer(folder)
        if isinstance(tokenizer, str):
            return (
                None,
                f"The tokenizer in {folder} cannot be loaded ({tokenizer}), so tokens are shown as ids.",
            )
        return {token: _text(tokenizer, token) for token in ids}, ""


def _model_folder(run: RecordedRun) -> Path | None:
    model = run.recipe.get("model")
    path = model.get("path") if isinstance(model, dict) else None
    try:
        folder = Path(str(resolved(path))).expanduser() if path else None
    except Exception:  # a variable that is not set here
        return None
    return folder if folder is not None and any((folder / name).is_file() for name in _FILES) else None


@lru_cache(maxsize=2)
def _tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder, or in one line why it cannot be loaded; code of the model is never run."""
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        return one_line(error)


def _text(tokenizer: Any, token: int) -> str:
    try:
        return str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    except Exception:
        return "\ufffd"
