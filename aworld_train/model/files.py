"""Where a model's files are on this machine: its directory, or the snapshot of a model on the hub in the cache."""

import re
from pathlib import Path

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_OF_EVERY_TOKENIZER = "tokenizer_config.json"


def is_hub_name(model: str) -> bool:
    """Whether it has the form of a model's name on the hub, such as ``Qwen/Qwen3-0.6B``."""
    return _HUB_NAME.fullmatch(model) is not None


def local_folder(model: str | None) -> Path | None:
    """The folder of a model's files; None if they are not on this machine. Nothing is downloaded."""
    folder = Path(model).expanduser() if model else None
    if model is None or folder is None or folder.is_dir():
        return folder
    if not is_hub_name(model):
        return None
    from huggingface_hub import constants

    cached = "--".join(("models", *model.split("/")))
    if not (Path(constants.HF_HUB_CACHE) / cached).is_dir():
        return None
    # Takes a third of a second to import.
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(model, _FILE_OF_EVERY_TOKENIZER)
    return Path(file).parent if isinstance(file, str) else None
