"""VeRL's checkpoints: which of them are whole, and which one VeRL takes up.

VeRL names its last checkpoint in a file of its own, which may be lost, empty, or older than the last whole checkpoint
when a run is killed. So the checkpoints themselves are looked at: PyTorch's files are zip archives, which end with
their directory, and a safetensors file says in its header how long it is; a file that was cut off has neither. What
Megatron writes has an index for each part, written last, and after these VeRL's list of what there is.
"""

import json
import re
import struct
import zipfile
from pathlib import Path

from aworld_train.adapter.base import Checkpoint
from aworld_train.atomic import write_text

_POINTER = "latest_checkpointed_iteration.txt"
_FOLDER = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")
_PARTS = ("model", "optim", "extra_state")
_OF_MEGATRON = ("optimizer/dist_ckpt/.metadata", "extra/dist_ckpt/.metadata", "ckpt_contents.json")
"""The index of each part, and VeRL's list of all (verl/utils/checkpoint/megatron_checkpoint_manager.py)."""
_MAX_HEADER_BYTES = 100 << 20


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint below a run's ``checkpoints``."""
    for step, path in reversed(_all(folder)):
        model = model_in(path)
        if model is not None and not fault(path):
            return Checkpoint(step, model)
    return None


def prepare_resume(folder: Path, checkpoint: Checkpoint | None) -> list[str]:
    """Have VeRL go on from that checkpoint, or from the beginning; returns what is wrong with newer ones."""
    pointer = folder / _POINTER
    if checkpoint is not None:
        write_text(pointer, str(checkpoint.step))
    else:
        pointer.unlink(missing_ok=True)
    done = checkpoint.step if checkpoint else 0
    return [
        f"The checkpoint {path.name} is not whole: {fault(path)}."
        for step, path in _all(folder)
        if step > done
    ]


def model_in(checkpoint: Path) -> Path | None:
    """The model, in Hugging Face's format, that a checkpoint holds."""
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
        if file.suffix == ".safetensors" and not _is_whole(file):
            return f"{file.relative_to(checkpoint)} is cut off"
    return ""


def _all(folder: Path) -> list[tuple[int, Path]]:
    """All checkpoints with their steps, in order."""
    numbered = [
        (match, path) for path in folder.glob("global_step_*") if (match := _FOLDER.fullmatch(path.name))
    ]
    return sorted((int(match[1]), path) for match, path in numbered)


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


def _is_whole(file: Path) -> bool:
    """Whether a safetensors file is as long as its header says.

    https://github.com/huggingface/safetensors#format
    """
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, _MAX_HEADER_BYTES)))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return bool(file.stat().st_size == 8 + length + max(ends, default=0))
    except (OSError, ValueError, AttributeError, KeyError, TypeError, IndexError, struct.error):
        return False
