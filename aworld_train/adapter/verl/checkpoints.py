"""VeRL's checkpoints: which of them are complete, which one VeRL takes up, and the model that one holds.

VeRL names its last checkpoint in a file, which may be lost, empty, or older than the last complete checkpoint when a
run is killed. So the checkpoints themselves are read: PyTorch's files are zip archives, which end with their directory,
a safetensors file has its length in its header, and what Megatron writes has an index for each part, written last.
"""

import json
import logging
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.base import Checkpoint, ExtractedModel, StoredCheckpoint, val_quality
from aworld_train.adapter.verl.compose import CONFIG_FILE
from aworld_train.adapter.verl.lora_weights import ADAPTER, is_split, merge
from aworld_train.atomic import write_text
from aworld_train.errors import ModelError
from aworld_train.json_lines import split_lines
from aworld_train.model.files import local_folder
from aworld_train.model.portable import is_portable, make_portable
from aworld_train.model.weights import is_whole

_log = logging.getLogger(__name__)
_POINTER = "latest_checkpointed_iteration.txt"
_FOLDER = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")
_PARTS = ("model", "optim", "extra_state")
_OF_MEGATRON = ("optimizer/dist_ckpt/.metadata", "extra/dist_ckpt/.metadata", "ckpt_contents.json")
"""The index of each part, and VeRL's list of all (verl/utils/checkpoint/megatron_checkpoint_manager.py)."""
_MAX_MERGE_SECONDS = 7200
_LORA_SETTINGS = ("r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern")


def last_checkpoint(folder: Path) -> Checkpoint | None:
    for step, path in reversed(_all(folder)):
        model = model_in(path)
        if model is not None and not fault(path):
            return Checkpoint(step, model)
    return None


def prepare_resume(folder: Path, checkpoint: Checkpoint | None) -> list[str]:
    if checkpoint is not None:
        point_at(folder, checkpoint.step)
    else:
        (folder / _POINTER).unlink(missing_ok=True)
    done = checkpoint.step if checkpoint else 0
    return [
        f"The checkpoint {path.name} is not whole: {fault(path)}."
        for step, path in _all(folder)
        if step > done
    ]


def stored(folder: Path) -> list[StoredCheckpoint]:
    return [StoredCheckpoint(step, path, fault(path)) for step, path in _all(folder)]


def keep_newest(folder: Path, count: int) -> None:
    """Remove checkpoints, except the ``count`` newest complete ones and the one with the best validation."""
    whole = [step for step, _, why in stored(folder) if not why]
    rows = split_lines(folder.parent / "metrics.jsonl")[0]
    validated = {row["step"]: quality for row in rows if (quality := val_quality(row)) is not None}
    best = max(
        (step for step in whole if step in validated),
        key=lambda step: (validated[step], step),
        default=None,
    )
    for step, path in _all(folder):
        if step < min(whole[-count:], default=0) and step != best:
            shutil.rmtree(path, ignore_errors=True)


def complete(model: Path, settings: Mapping[str, Any]) -> None:
    """Make the model that VeRL has saved load wherever the input model does; its LoRA adapter goes beside it."""
    if is_split(model):
        described = model.parent / "lora_train_meta.json"
        if given := settings.get("lora_adapter_path"):
            described = Path(given) / "adapter_config.json"
        lora = json.loads(described.read_text(encoding="utf-8"))
        lora = {key: lora[key] for key in _LORA_SETTINGS if key in lora}
        lora["base_model_name_or_path"] = settings.get("path")
        merge(model, model.parent / ADAPTER, lora, trust_remote_code=bool(settings.get("trust_remote_code")))
        shutil.rmtree(model / ADAPTER, ignore_errors=True)
    source = local_folder(settings.get("path"))
    if source is None:
        _log.warning(
            "%s is not on this machine: the tokenizer is as transformers writes it", settings.get("path")
        )
    make_portable(model, source)


def extract_model(checkpoint: Path, into: Path) -> ExtractedModel:
    model, why = model_in(checkpoint), fault(checkpoint)
    weights = list(model.glob("*.safetensors")) if model else []
    if weights and all(map(is_whole, weights)):
        assert model is not None
        if why:
            raise ModelError(f"The checkpoint {checkpoint} is not whole: {why}.")
        if is_portable(model):
            adapter = model.parent / ADAPTER
            return ExtractedModel(model, adapter if adapter.is_dir() else None)
        made = shutil.copytree(model, into / "model")
    else:
        made = _merge_shards(checkpoint, into / "model")
    with suppress(FileNotFoundError):
        shutil.copy(checkpoint / "actor" / "lora_train_meta.json", into)
    file = checkpoint.parent.parent / CONFIG_FILE
    config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    complete(made, (config.get("actor_rollout_ref") or {}).get("model") or {})
    return ExtractedModel(made, into / ADAPTER if (into / ADAPTER).is_dir() else None)


def _merge_shards(checkpoint: Path, target: Path) -> Path:
    """The model that VeRL's own merger makes of FSDP's shards, in bfloat16."""
    actor = checkpoint / "actor"
    if not any(_SHARD.fullmatch(file.name) for file in actor.glob("*.pt")):
        raise ModelError(f"The checkpoint {checkpoint} holds neither a whole model nor shards of FSDP.")
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(actor), "--target_dir", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAX_MERGE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"VeRL's merger took more than {_MAX_MERGE_SECONDS} s for {checkpoint}.") from error
    if done.returncode != 0:
        cause = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(f"VeRL cannot merge the shards of {checkpoint}: {cause}")
    return target


def point_at(folder: Path, step: int) -> None:
    write_text(folder / _POINTER, str(step))


def pointed_at(folder: Path) -> int:
    """The step that ``point_at`` has written; 0 if there is none."""
    pointer = folder / _POINTER
    return int(pointer.read_text()) if pointer.is_file() else 0


def model_in(checkpoint: Path) -> Path | None:
    for name in ("actor/huggingface", "actor/model/huggingface", "huggingface"):
        folder = checkpoint / name
        if (folder / "config.json").is_file():
            return folder
    return None


def fault(checkpoint: Path) -> str:
    """Why a checkpoint is not whole; empty if it is."""
    if model_in(checkpoint) is None:
        return "it has no model in Hugging Face's format"
    missing = [name for name in _expected(checkpoint) if not (checkpoint / name).is_file()]
    if missing:
        return f"{missing[0]} is missing"
    for file in sorted(checkpoint.rglob("*")):
        if file.suffix == ".pt" and not zipfile.is_zipfile(file):
            return f"{file.relative_to(checkpoint)} is cut off"
        if file.suffix == ".safetensors" and not is_whole(file):
            return f"{file.relative_to(checkpoint)} is cut off"
    return ""


def _all(folder: Path) -> list[tuple[int, Path]]:
    paths = folder.glob("global_step_*")
    return sorted((int(match[1]), path) for path in paths if (match := _FOLDER.fullmatch(path.name)))


def _expected(checkpoint: Path) -> list[str]:
    """The files that a checkpoint has: of FSDP three of each rank, or Megatron's, and the place in the data."""
    names = ["data.pt"]
    for role in ("actor", "critic"):
        sizes = [int(m[1]) for file in (checkpoint / role).glob("*.pt") if (m := _SHARD.fullmatch(file.name))]
        for size in sizes[:1]:
            names += [f"{role}/{part}_world_size_{size}_rank_{r}.pt" for part in _PARTS for r in range(size)]
        if (checkpoint / role / "model").is_dir():
            names += [f"{role}/{name}" for name in _OF_MEGATRON]
    return names
