"""Which checkpoint a run goes on from when its files were lost or cut off."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aworld_train.adapter.verl import checkpoints

POINTER = "latest_checkpointed_iteration.txt"


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"x" * 2000)


def checkpoint(folder: Path, step: int, ranks: int = 2) -> Path:
    """A checkpoint as FSDP's is, with the formats of the real files."""
    path = folder / f"global_step_{step}"
    (path / "actor/huggingface").mkdir(parents=True)
    for part in ("model", "optim", "extra_state"):
        for rank in range(ranks):
            archive(path / f"actor/{part}_world_size_{ranks}_rank_{rank}.pt")
    archive(path / "data.pt")
    (path / "actor/huggingface/config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + b"\0" * 16
    (path / "actor/huggingface/model.safetensors").write_bytes(weights)
    return path


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


BREAKING: dict[str, tuple[Callable[[Path], None], str]] = {
    "a shard is cut off": (
        lambda path: cut(path / "actor/optim_world_size_2_rank_1.pt"),
        "actor/optim_world_size_2_rank_1.pt is cut off",
    ),
    "a shard is empty": (
        lambda path: (path / "actor/model_world_size_2_rank_0.pt").write_bytes(b""),
        "cut off",
    ),
    "a shard is missing": (
        lambda path: (path / "actor/extra_state_world_size_2_rank_1.pt").unlink(),
        "actor/extra_state_world_size_2_rank_1.pt is missing",
    ),
    "the place in the data is missing": (lambda path: (path / "data.pt").unlink(), "data.pt is missing"),
    "the model is cut off": (
        lambda path: cut(path / "actor/huggingface/model.safetensors"),
        "model.safetensors is cut off",
    ),
    "the model's header is cut off": (
        lambda path: (path / "actor/huggingface/model.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{"),
        "model.safetensors is cut off",
    ),
    "there is no model": (
        lambda path: (path / "actor/huggingface/config.json").unlink(),
        "no model in Hugging Face's format",
    ),
}


@pytest.mark.parametrize("what", BREAKING)
def test_a_checkpoint_that_is_not_whole_is_passed_over_and_named(tmp_path: Path, what: str) -> None:
    breaking, message = BREAKING[what]
    checkpoint(tmp_path, 4)
    breaking(checkpoint(tmp_path, 8))
    last = checkpoints.last_checkpoint(tmp_path)
    assert last is not None
    assert (last.step, last.model) == (4, tmp_path / "global_step_4/actor/huggingface")
    notes = checkpoints.prepare_resume(tmp_path, last)
    assert len(notes) == 1 and "global_step_8 is not whole" in notes[0] and message in notes[0]
    assert (tmp_path / POINTER).read_text() == "4"


@pytest.mark.parametrize("pointer", [None, "", "7", "four", "4"], ids=str)
def test_the_newest_whole_checkpoint_is_taken_whatever_the_pointer_says(
    tmp_path: Path, pointer: str | None
) -> None:
    for step in (4, 8, 12):
        checkpoint(tmp_path, step)
    if pointer is not None:
        (tmp_path / POINTER).write_text(pointer)
    last = checkpoints.last_checkpoint(tmp_path)
    assert last is not None and last.step == 12
    assert checkpoints.prepare_resume(tmp_path, last) == []
    assert (tmp_path / POINTER).read_text() == "12"


def test_without_a_whole_checkpoint_verl_is_told_to_begin(tmp_path: Path) -> None:
    assert checkpoints.last_checkpoint(tmp_path / "none") is None
    cut(checkpoint(tmp_path, 3) / "data.pt")
    (tmp_path / POINTER).write_text("3")
    assert checkpoints.last_checkpoint(tmp_path) is None
    assert len(checkpoints.prepare_resume(tmp_path, None)) == 1
    assert not (tmp_path / POINTER).exists()
