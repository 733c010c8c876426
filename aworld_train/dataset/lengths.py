"""Lengths of prompts in a model's tokens, as its chat template renders them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from aworld_train.errors import ModelError, ModelNotFound

PERCENTILES = (50, 90, 99)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class PromptLengths:
    """Lengths of a file's prompts in tokens, by ``p50``, ``p90``, ``p99`` and ``max``; ``longer`` than ``most``."""

    percentiles: Mapping[str, int]
    most: int | None
    longer: int


def summary(lengths: Mapping[int, int], most: int | None) -> PromptLengths:
    """``lengths`` has how many prompts have each."""
    marks = percentiles(lengths)
    del marks["min"]
    longer = sum(count for length, count in lengths.items() if most is not None and length > most)
    return PromptLengths(marks, most, longer)


def percentiles(counts: Mapping[int, int]) -> dict[str, int]:
    lengths = sorted(counts)
    up_to = list(accumulate(counts[length] for length in lengths))
    marks = {"min": lengths[0]}
    for percent in PERCENTILES:
        marks[f"p{percent}"] = next(
            length for length, count in zip(lengths, up_to, strict=True) if count * 100 >= percent * up_to[-1]
        )
    return {**marks, "max": lengths[-1]}


def prompt_tokenizer(model: Path, note: Callable[[str], None]) -> Any:
    if not model.is_dir():
        raise ModelNotFound(f"No such model directory: {model}, so prompts cannot be measured (--model).")
    if not any((model / name).is_file() for name in _TOKENIZER_FILES):
        raise _not_loaded(model, f"there is neither {' nor '.join(_TOKENIZER_FILES)}")
    note(f"Loading the tokenizer of {model}.")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise _not_loaded(model, reason) from error
    if not tokenizer.chat_template:
        raise ModelError(f"The tokenizer of {model} has no chat template, so prompts cannot be measured.")
    return tokenizer


def _not_loaded(model: Path, reason: str) -> ModelNotFound:
    return ModelNotFound(
        f"{model} has no tokenizer that can be loaded: {reason}. Give a model's directory, with its tokenizer.json."
    )


def prompt_lengths(tokenizer: Any, prompts: Sequence[Sequence[Mapping[str, str]]]) -> list[int]:
    conversations = [
        [{"role": message["role"], "content": message["content"] or ""} for message in prompt]
        for prompt in prompts
    ]
    if not conversations:
        return []
    token_lists = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, return_dict=False)
    return list(map(len, token_lists))
