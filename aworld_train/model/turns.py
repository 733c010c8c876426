"""Tries how a model's chat template continues turns, in a process of its own, because that loads transformers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from aworld_train import module_process
from aworld_train.model.files import local_folder

_MAX_SECONDS = 60


class TurnsCheck:
    """A process that tries a model's chat template; its line is only information.

    Args:
        model: A model directory, or the name of a model on the hub; it is tried if its files are on this machine.
        options: Further arguments of the template.
    """

    def __init__(self, model: str | None, options: Mapping[str, Any]):
        self._process: subprocess.Popen[str] | None = None
        folder = local_folder(model)
        if folder is not None and has_fast_tokenizer(folder):
            self._process = module_process.start(__name__, [str(folder), dict(options)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def line(self) -> str | None:
        """What was found, in one line; None if nothing was tried, or it failed or took too long."""
        if self._process is None:
            return None
        try:
            output, _ = self._process.communicate(timeout=_MAX_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return output.strip() or None if self._process.returncode == 0 else None


def has_fast_tokenizer(model: str | Path) -> bool:
    """Whether a folder has a tokenizer whose template can be tried."""
    return (Path(model) / "tokenizer.json").is_file()


def turns_line(model: str, options: Mapping[str, Any]) -> str:
    """How the chat template of a local model continues turns, in one line."""
    from transformers import AutoTokenizer

    from aworld_train.rollout.template import ChatTemplate
    from aworld_train.rollout.template_proof import prove

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    ends = sorted({tokenizer.eos_token_id, *_generation_ends(model)} - {None})
    return prove(ChatTemplate(tokenizer, ends, options)).line


def _generation_ends(model: str) -> list[int]:
    """The tokens that end a turn by the model's generation configuration; none where there is no such file."""
    try:
        settings = json.loads((Path(model) / "generation_config.json").read_text(encoding="utf-8"))
        ends = settings.get("eos_token_id")
    except (OSError, ValueError):
        return []
    return [ends] if isinstance(ends, int) else list(ends or ())


if __name__ == "__main__":
    sys.stdout.write(turns_line(*json.load(sys.stdin)) + "\n")
