"""Where a model's files are on this machine: its directory, or the snapshot of a model on the hub in the cache."""

import re
from collections.abc import Callable
from pathlib import Path

from aworld_train.errors import ModelError, one_line
from aworld_train.json_lines import read_json

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_OF_EVERY_TOKENIZER = "tokenizer_config.json"
_BESIDE_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")


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
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError:  # it comes with the training profiles, and has filled the cache
        return None

    cached = "--".join(("models", *model.split("/")))
    if not (Path(constants.HF_HUB_CACHE) / cached).is_dir():
        return None
    # Takes a third of a second to import.
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(model, _FILE_OF_EVERY_TOKENIZER)
    return Path(file).parent if isinstance(file, str) else None


def vocabulary_of(folder: Path) -> dict[str, int] | None:
    """The number of each token, added ones included; None without a `tokenizer.json` that has them.

    By the files alone: the library that loads a tokenizer takes seconds to import.
    """
    content = read_json(folder / "tokenizer.json")
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of pieces with their scores
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        return None
    return {**vocabulary, **{token["content"]: token["id"] for token in content.get("added_tokens") or ()}}


def fetch(model: str, say: Callable[[str], None]) -> bool:
    """Fetch a model of the hub before many processes would at once; returns whether the cache may have changed."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or Path(model).expanduser().is_dir() or not is_hub_name(model):
        return False
    from huggingface_hub import snapshot_download

    say(f"Fetching what is missing of {model} from the hub into {constants.HF_HUB_CACHE}.")
    try:
        folder = Path(snapshot_download(model, allow_patterns=[*_BESIDE_WEIGHTS, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(model, allow_patterns=["pytorch_model*.bin"])
    except (OSError, ImportError) as error:  # httpx without what a SOCKS proxy needs
        cause = one_line(error).rstrip(".")
        raise ModelError(
            f"The model {model} could not be fetched: {cause}. Set HF_TOKEN where it is private or asks for consent, "
            "or fetch it elsewhere and give its folder as model.path."
        ) from error
    return True
