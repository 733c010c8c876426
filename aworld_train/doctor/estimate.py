"""How much memory and disk a model takes, from the sizes of its files; nothing of it is loaded."""

import json
from pathlib import Path

from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

GB = 10**9
TRAINED_BYTES = 16
"""Of a trained parameter: weight, gradient and AdamW's two moments, in fp32."""
_WIDE = ("float32", "float")


def model_folder(machine: Machine, model: str) -> Path | None:
    """The folder of a model's files: its directory, or its snapshot in the hub's cache; None if there is none."""
    folder = machine.folder / Path(model).expanduser()
    if folder.is_dir():
        return folder
    snapshots = hub_cache(machine) / "--".join(("models", *model.split("/"))) / "snapshots"
    complete = [config.parent for config in snapshots.glob("*/config.json")]
    return max(complete, key=lambda path: path.stat().st_mtime, default=None)


def hub_cache(machine: Machine) -> Path:
    """The folder of models from the hub, as huggingface_hub chooses it."""
    if cache := machine.variable("HF_HUB_CACHE") or machine.variable("HUGGINGFACE_HUB_CACHE"):
        return Path(cache)
    return hub_home(machine) / "hub"


def hub_home(machine: Machine) -> Path:
    """The folder of huggingface_hub, in which its token is."""
    if home := machine.variable("HF_HOME"):
        return Path(home)
    return Path(machine.variable("XDG_CACHE_HOME") or machine.home() / ".cache") / "huggingface"


def weight_files(folder: Path) -> list[Path]:
    return [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]


def parameters(machine: Machine, needs: Needs) -> int:
    """How many parameters the recipe's model has; 0 if its files are not on this machine."""
    model = needs.recipe.model.location if needs.recipe is not None else None
    folder = model_folder(machine, model) if model else None
    if folder is None:
        return 0
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    width = 4 if config.get("dtype", config.get("torch_dtype")) in _WIDE else 2
    return sum(file.stat().st_size for file in weight_files(folder)) // width


def gigabytes(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB else f"{size / 10**6:.0f} MB"
