"""Checks before a run that what a recipe names is on this machine; models by their files alone, datasets unread."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from aworld_train.errors import ModelError, UsageError
from aworld_train.json_lines import read_json
from aworld_train.model.files import is_hub_name, local_folder
from aworld_train.recipe.locate import commands_for
from aworld_train.recipe.schema import CassetteMode, Recipe
from aworld_train.recipe.tree import KeyPath

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_GENERATES = re.compile("CausalLM|ConditionalGeneration|LMHead")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")


def file_faults(recipe: Recipe, splits: Sequence[str] = ("train", "val")) -> Iterator[tuple[KeyPath, str]]:
    """The missing files of a recipe: its key, and one sentence for each. A model's name on the hub is not looked up."""
    if recipe.model.location:
        try:
            check_model(recipe.model.location)
        except ModelError as error:
            yield ("model", "path"), f"`model.path`: {error.message}"
    if recipe.env.started_from is not None and recipe.env.cassette.mode is not CassetteMode.replay:
        from aworld_train.env.directory import find_directory

        try:
            find_directory(recipe.env.started_from)
        except UsageError as error:
            key = "docker_dir" if recipe.env.docker_dir is not None else "mcp_servers"
            yield ("env", key), f"`env.{key}`: {error.message}"
    in_split = {"train": recipe.dataset.train_files, "val": recipe.dataset.val_files}
    named = [(name, path) for name in splits for path in in_split[name]]
    for name, path in named:
        if not Path(path).expanduser().is_file():
            build = commands_for(path, "aworld-train dataset") or "`aworld-train dataset build`"
            yield (
                ("dataset", name),
                f"`dataset.{name}`: no such file: {path}. Give an existing one, or build it with {build}; "
                "paths are relative to the current folder.",
            )


def check_model(path: str | None) -> None:
    """Check that a model can be loaded and has a chat template; the name of a model on the hub is not checked.

    A name such as ``models/tiny`` is that of a directory where ``models`` is one, or a ready recipe makes it.
    """
    if not path:
        raise ModelError(
            "model.path is not set. Give a Hugging Face model directory or the name of a model on the hub."
        )
    folder = Path(path).expanduser()
    if not folder.exists():
        make = commands_for(path, "aworld-train model tiny")
        if is_hub_name(path) and not folder.parent.is_dir() and not make:
            if cached := local_folder(path):
                _check_kind(path, cached)
            return
        raise ModelError(
            f"No such model directory: {path}. Give an existing one, or make a small one with "
            f"{make or f'`aworld-train model tiny --out {path}`'}."
        )
    if not (folder / "config.json").is_file():
        raise ModelError(f"{path} is not a Hugging Face model directory: it has no config.json.")
    _check_kind(path, folder)
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        raise ModelError(f"The model directory {path} has no weights (*.safetensors).")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelError(
            f"The model directory {path} has no tokenizer (none of {', '.join(_TOKENIZERS)}). Save the model's "
            "tokenizer into it: AutoTokenizer.from_pretrained(...).save_pretrained(...)."
        )
    if not _has_chat_template(folder):
        raise ModelError(
            f"The tokenizer in {path} has no chat template, so messages and tools cannot be turned into a prompt. Use "
            "an instruction-tuned model, or put a chat_template.jinja into the directory."
        )


def _check_kind(path: str, folder: Path) -> None:
    """Check that a model writes text from left to right, as far as its configuration says what it is."""
    config = read_json(folder / "config.json")
    architectures = config.get("architectures")
    names = [str(name) for name in architectures] if isinstance(architectures, list) else []
    if config.get("is_encoder_decoder") or (names and not any(_GENERATES.search(name) for name in names)):
        raise ModelError(
            f"The model {path} is a {', '.join(names) or 'model with an encoder'}, which does not write text after a "
            "prompt. Give a causal language model that is tuned to instructions, such as Qwen/Qwen2.5-1.5B-Instruct."
        )


def _has_chat_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return bool(read_json(folder / "tokenizer_config.json").get("chat_template"))
