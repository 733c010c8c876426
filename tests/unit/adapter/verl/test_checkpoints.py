"""Which checkpoint a run goes on from when its files were lost or cut off."""

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aworld_train.adapter.base import Checkpoint
from aworld_train.adapter.verl import checkpoints
from aworld_train.errors import ModelError

POINTER = "latest_checkpointed_iteration.txt"


def archive(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"x" * 2000)


def checkpoint(folder: Path, step: int, ranks: int = 2) -> Path:
    """A checkpoint as FSDP's is, with the formats of the real files."""
    path = folder / f"global_step_{step}"
    (path / "actor/huggingface").mkdir(parents=True, exist_ok=True)
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
        "actor/model_world_size_2_rank_0.pt is cut off",
    ),
    "a shard is missing": (
        lambda path: (path / "actor/extra_state_world_size_2_rank_1.pt").unlink(),
        "actor/extra_state_world_size_2_rank_1.pt is missing",
    ),
    "a shard of the critic is missing": (
        lambda path: archive(path / "critic/model_world_size_1_rank_0.pt"),
        "critic/optim_world_size_1_rank_0.pt is missing",
    ),
    "the place in the data is missing": (lambda path: (path / "data.pt").unlink(), "data.pt is missing"),
    "the model is cut off": (
        lambda path: cut(path / "actor/huggingface/model.safetensors"),
        "actor/huggingface/model.safetensors is cut off",
    ),
    "the model's header is cut off": (
        lambda path: (path / "actor/huggingface/model.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{"),
        "actor/huggingface/model.safetensors is cut off",
    ),
    "there is no model": (
        lambda path: (path / "actor/huggingface/config.json").unlink(),
        "it has no model in Hugging Face's format",
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
    assert notes == [f"The checkpoint global_step_8 is not whole: {message}."]
    assert (tmp_path / POINTER).read_text() == "4"


def by_megatron(folder: Path, step: int) -> Path:
    """A checkpoint as Megatron's is: the model beside distributed parts, and a list of what there is."""
    path = checkpoint(folder, step, ranks=0)
    (path / "actor/model").mkdir()
    (path / "actor/huggingface").rename(path / "actor/model/huggingface")
    for part in ("optimizer", "extra"):
        (path / f"actor/{part}/dist_ckpt").mkdir(parents=True)
        (path / f"actor/{part}/dist_ckpt/.metadata").write_bytes(b"index")
    (path / "actor/ckpt_contents.json").write_text("{}")
    return path


@pytest.mark.parametrize(
    "lost", ["ckpt_contents.json", "optimizer/dist_ckpt/.metadata", "extra/dist_ckpt/.metadata"]
)
def test_a_checkpoint_of_megatron_is_whole_with_its_list_and_every_index(tmp_path: Path, lost: str) -> None:
    by_megatron(tmp_path, 4)
    (by_megatron(tmp_path, 8) / "actor" / lost).unlink()
    last = checkpoints.last_checkpoint(tmp_path)
    assert last == Checkpoint(4, tmp_path / "global_step_4/actor/model/huggingface")
    assert checkpoints.fault(tmp_path / "global_step_8") == f"actor/{lost} is missing"


@pytest.mark.parametrize("pointer", [None, "", "7", "four", "4"], ids=str)
def test_the_newest_whole_checkpoint_is_taken_whatever_the_pointer_says(
    tmp_path: Path, pointer: str | None
) -> None:
    for step in (4, 8, 12):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 16).rename(tmp_path / "global_step_16.old")
    if pointer is not None:
        (tmp_path / POINTER).write_text(pointer)
    last = checkpoints.last_checkpoint(tmp_path)
    assert last is not None and last.step == 12
    assert checkpoints.fault(tmp_path / "global_step_12") == ""
    assert checkpoints.prepare_resume(tmp_path, last) == []
    assert (tmp_path / POINTER).read_text() == "12"


def test_without_a_whole_checkpoint_verl_is_told_to_begin(tmp_path: Path) -> None:
    assert checkpoints.last_checkpoint(tmp_path / "none") is None
    cut(checkpoint(tmp_path, 1) / "data.pt")
    (tmp_path / POINTER).write_text("1")
    assert checkpoints.last_checkpoint(tmp_path) is None
    for _ in range(2):  # with a pointer, and without
        notes = checkpoints.prepare_resume(tmp_path, None)
        assert notes == ["The checkpoint global_step_1 is not whole: data.pt is cut off."]
        assert not (tmp_path / POINTER).exists()


def test_the_model_of_a_checkpoint_may_stand_beside_its_shards(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 4)
    model = (path / "actor/huggingface").rename(path / "huggingface")
    assert checkpoints.last_checkpoint(tmp_path) == Checkpoint(4, model)


def test_older_checkpoints_go_when_enough_newer_ones_are_whole(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        checkpoint(tmp_path, step)
    cut(tmp_path / "global_step_6/data.pt")
    checkpoints.keep_newest(tmp_path, 2)
    assert [(each.step, bool(each.fault)) for each in checkpoints.stored(tmp_path)] == [
        (4, False),
        (6, True),
        (8, False),
    ]
    cut(tmp_path / "global_step_8/data.pt")
    checkpoints.keep_newest(tmp_path, 2)
    assert [each.step for each in checkpoints.stored(tmp_path)] == [4, 6, 8]


def test_the_best_checkpoint_stays_beside_the_newest(tmp_path: Path) -> None:
    accuracies = {0: 0.9, 2: 0.5, 4: 0.7, 6: 0.7, 8: 0.6, 12: 0.8}
    folder = tmp_path / "checkpoints"
    for step in (2, 4, 6, 8, 10):
        checkpoint(folder, step)
    rows = [{"step": step, "val_accuracy": accuracy} for step, accuracy in accuracies.items()]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"step": 10}]))
    checkpoints.keep_newest(folder, 1)
    assert [each.step for each in checkpoints.stored(folder)] == [6, 10]


@pytest.mark.parametrize(
    ("breaking", "message"),
    [
        (lambda path: shutil.rmtree(path / "actor/huggingface"), "neither a whole model nor shards"),
        (lambda path: (path / "data.pt").unlink(), r"is not whole: data\.pt is missing"),
    ],
    ids=["nothing", "unfinished"],
)
def test_a_model_that_cannot_be_taken_is_refused_with_the_reason(
    breaking: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    path = checkpoint(tmp_path, 4, ranks=0)
    breaking(path)
    with pytest.raises(ModelError, match=message):
        checkpoints.extract_model(path, tmp_path)
