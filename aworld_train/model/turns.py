"""Tries how a model's chat template continues turns, in a process of its own, because that loads transformers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aworld_train import module_process
from aworld_train.json_lines import read_json
from aworld_train.model.files import local_folder

if TYPE_CHECKING:
    from aworld_train.rollout.template import ChatTemplate

_MAX_SECONDS = 60


def try_turns(model: str | None, options: Mapping[str, Any]) -> str | None:
    """How a model's chat template continues turns, in one line; None if it cannot be tried on this machine in time."""
    folder = local_folder(model)
    if folder is None or not has_fast_tokenizer(folder):
        return None
    process = module_process.start(__name__, [str(folder), dict(options)])
    try:
        output, _ = process.communicate(timeout=_MAX_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.communicate()
    return output.strip() or None if process.returncode == 0 else None


def has_fast_tokenizer(model: str | Path) -> bool:
    return (Path(model) / "tokenizer.json").is_file()


def leave_out_torch() -> None:
    """Have transformers do without torch in this process: tokenizers need none of it, and it takes 4 s to import."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def turns_line(model: str, options: Mapping[str, Any]) -> str:
    from aworld_train.rollout.template_proof import prove

    return prove(chat_template(model, options)).line


def chat_template(model: str, options: Mapping[str, Any]) -> "ChatTemplate":
    from transformers import AutoTokenizer

    from aworld_train.rollout.template import ChatTemplate

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    ends = sorted({tokenizer.eos_token_id, *end_tokens(model)} - {None})
    return ChatTemplate(tokenizer, ends, options)


def end_tokens(model: str) -> tuple[int, ...]:
    """The tokens that end a turn by the model's generation configuration; none if the model has no such file."""
    ends = read_json(Path(model) / "generation_config.json").get("eos_token_id")
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


if __name__ == "__main__":
    leave_out_torch()
    sys.stdout.write(turns_line(*json.load(sys.stdin)) + "\n")
