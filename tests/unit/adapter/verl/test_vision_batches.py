"""Batches of models that see images; in processes of their own, because VeRL patches classes."""

import subprocess

import pytest

from tests import warm

pytest.importorskip("verl", reason="verl is not installed")

REPAIRED = "import aworld_train.adapter.verl.vision_batches"
WITHOUT_IMAGES = """
import torch
from tests.vision_model import untaught
from verl.models.transformers.monkey_patch import apply_monkey_patch

model, _ = untaught()
tokens = torch.arange(12)[None]
with torch.inference_mode():
    expected = model(input_ids=tokens, use_cache=False).logits
apply_monkey_patch(model, use_remove_padding=False)
places = torch.arange(12).expand(4, 1, 12)
logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), position_ids=places).logits
logits.sum().backward()
assert torch.allclose(logits, expected, atol=1e-6)
assert all(weight.grad is not None for weight in model.parameters())
"""
OF_EQUAL_LENGTH = """
import torch
from tensordict import TensorDict
from verl.workers.engine import base

for lengths in ([20, 20, 20], [20, 5, 9], [20], [4]):
    rows = [torch.randint(99, (4, length)) for length in lengths]
    packed = torch.nested.as_nested_tensor(rows, layout=torch.jagged)  # as TransferQueue does
    data = TensorDict({"position_ids": packed}, batch_size=[len(rows)])
    base.maybe_fix_3d_position_ids(data)
    assert all(map(torch.equal, data["position_ids"].unbind(), rows)), lengths
    padded = torch.nested.to_padded_tensor(data["position_ids"], padding=0, output_size=(len(rows), 4, 20))
    assert all(torch.equal(mine[:, : row.shape[1]], row) for mine, row in zip(padded, rows)), lengths
"""
CASES = [(WITHOUT_IMAGES, "has no attribute 'mean'"), (OF_EQUAL_LENGTH, "split_with_sizes")]


def run(*lines: str) -> "subprocess.CompletedProcess[str]":
    return warm.run("-c", "\n".join(lines), timeout=300, kind=warm.LIBRARIES)


@pytest.mark.parametrize(("program", "error"), CASES)
def test_verl_still_fails(program: str, error: str) -> None:
    done = run(program)
    assert done.returncode == 1 and error in done.stderr, done.stderr


@pytest.mark.parametrize("program", [program for program, _ in CASES])
def test_repaired_they_are_trained_on(program: str) -> None:
    done = run(REPAIRED, program)
    assert done.returncode == 0, done.stderr
