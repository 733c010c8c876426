"""Safetensors files: whether one is whole, in which numbers a model's weights are, and the same weights in others.

The format: https://github.com/huggingface/safetensors#format
"""

import json
import math
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text
from aworld_train.errors import ModelError, UsageError

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
INDEX = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100 << 20


def entries(file: Path) -> dict[str, Any]:
    """Each tensor of a file by name: ``dtype``, ``shape`` and ``data_offsets``."""
    return _read(file)[0]


def is_whole(file: Path) -> bool:
    """Whether a file is as long as its header says."""
    try:
        header, length = _read(file)
        ends = [entry["data_offsets"][1] for entry in header.values()]
        return bool(file.stat().st_size == 8 + length + max(ends, default=0))
    except (OSError, ValueError, AttributeError, KeyError, TypeError, IndexError, struct.error):
        return False


def _read(file: Path) -> tuple[dict[str, Any], int]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(min(length, _MAX_HEADER_BYTES)))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}, length


def dtype_of(folder: Path) -> str:
    """The dtype that most of a model's weights have, such as ``float32``."""
    sizes: Counter[str] = Counter()
    for file in folder.glob("*.safetensors"):
        for entry in entries(file).values():
            start, end = entry["data_offsets"]
            sizes[entry["dtype"]] += end - start
    known = [DTYPES[name] for name, _ in sizes.most_common() if name in DTYPES]
    if not known:
        raise ModelError(f"{folder} has no weights in float32, bfloat16 or float16.")
    return known[0]


def parameters_of(folder: Path) -> int:
    return sum(
        math.prod(entry["shape"]) for file in folder.glob("*.safetensors") for entry in entries(file).values()
    )


def copy(source: Path, target: Path, dtype: str | None) -> None:
    for file in sorted(source.glob("*.safetensors")):
        if dtype is None:
            shutil.copyfile(file, target / file.name)
        else:
            _round(file, target / file.name, dtype)
    if (source / INDEX).is_file():
        index = json.loads((source / INDEX).read_text(encoding="utf-8"))
        sizes = (
            entry["data_offsets"] for file in target.glob("*.safetensors") for entry in entries(file).values()
        )
        index.setdefault("metadata", {})["total_size"] = sum(end - start for start, end in sizes)
        write_text(target / INDEX, json.dumps(index, indent=2) + "\n")


def _round(file: Path, target: Path, dtype: str) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    rounded = {}
    with safe_open(file, "pt") as weights:
        for name in weights.keys():  # noqa: SIM118  it is not a mapping
            tensor = weights.get_tensor(name)
            if tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
                rounded[name] = tensor.to(getattr(torch, dtype))
                if not torch.equal(rounded[name].isfinite(), tensor.isfinite()):
                    raise UsageError(
                        f"{name} has numbers that are too large for {dtype}. Take --dtype bfloat16."
                    )
            else:
                rounded[name] = tensor
    save_file(rounded, target, {"format": "pt"})
