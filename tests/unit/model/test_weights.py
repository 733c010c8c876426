"""Safetensors files: which are whole, what their numbers are, and how they are rounded."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from aworld_train.errors import ModelError, UsageError
from aworld_train.model import weights


@pytest.mark.parametrize(
    ("header", "size", "is_whole"),
    [
        ({"__metadata__": {"format": "pt"}}, 0, True),
        ({"__metadata__": {}, "a": {"data_offsets": [8, 24]}, "b": {"data_offsets": [0, 8]}}, 24, True),
        ({"a": {"data_offsets": [0, 8]}}, 9, False),
        ({"a": {}}, 0, False),
        ({"a": []}, 0, False),
        ([], 0, False),
    ],
)
def test_a_file_of_safetensors_is_as_long_as_its_header_says(
    header: Any, size: int, is_whole: bool, tmp_path: Path
) -> None:
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    assert weights.is_whole(file) is is_whole


def in_two_files(folder: Path) -> Path:
    """A model of 14 numbers: most in bfloat16, a few in float32, and two integers."""
    folder.mkdir()
    parts = [
        {"a": torch.randn(10).bfloat16()},
        {"b": torch.tensor([1.0, 1 + 2**-12]), "c": torch.tensor([3, 4], dtype=torch.int16)},
    ]
    names = [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, {"format": "pt"})
    places = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    (folder / weights.INDEX).write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": places}))
    return folder


def test_the_dtype_is_that_of_most_bytes_and_every_number_counts(tmp_path: Path) -> None:
    model = in_two_files(tmp_path / "model")
    assert weights.dtype_of(model) == "bfloat16"
    assert weights.parameters_of(model) == 14
    with pytest.raises(ModelError, match="has no weights in float32"):
        weights.dtype_of(tmp_path)


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "float16"])
def test_copied_weights_are_the_same_or_rounded_and_the_index_has_their_size(
    dtype: str | None, tmp_path: Path
) -> None:
    model, target = in_two_files(tmp_path / "model"), tmp_path / "copy"
    target.mkdir()
    weights.copy(model, target, dtype)
    for file in model.glob("*.safetensors"):
        before, after = load_file(file), load_file(target / file.name)
        for name, tensor in before.items():
            kept = dtype is None or not tensor.is_floating_point()
            assert torch.equal(after[name], tensor if kept else tensor.to(getattr(torch, str(dtype))))
    index = json.loads((target / weights.INDEX).read_text())
    assert index["metadata"]["total_size"] == (
        32 if dtype is None else 12 * (4 if dtype == "float32" else 2) + 4
    )


def test_weights_that_a_dtype_cannot_hold_are_refused(tmp_path: Path) -> None:
    save_file({"large": torch.tensor([1.0, 1e6])}, tmp_path / "model.safetensors")
    (tmp_path / "copy").mkdir()
    with pytest.raises(UsageError, match="large has numbers that are too large for float16"):
        weights.copy(tmp_path, tmp_path / "copy", "float16")
