"""MINIRL with ages, groups that are replaced, and a curriculum, in one run of VeRL; and every preset."""

from typing import Any

import pytest
import torch

from aworld_train.recipe.schema import Preset
from tests.e2e.conftest import SMALL, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_loss_of_our_own_with_replaced_groups_and_a_curriculum(workspace: Workspace) -> None:
    overrides = [
        "algorithm.preset=minirl",
        "algorithm.age_decay=0.5",
        "rollout.equal_group=resample",
        "dataset.curriculum=difficulty",
    ]
    done = workspace.run("train", "recipes/quickstart.yaml", "name=losses", *SMALL, *overrides)
    assert done.returncode == 0, done.stderr
    assert workspace.summary("losses")["status"] == "completed"
    steps = workspace.metrics("losses")[1:]
    assert all(row["groups"] == 4 for row in steps)
    replaced = [int(row["resampled_groups"]) for row in steps]
    state = curriculum_of(workspace, "losses")
    assert sum(state["plays"]) == 4 * 4 + sum(replaced), "one task for each group, and one for each replaced"
    assert sum(state["episodes"]) == 4 * sum(state["plays"])
    episodes = [line for line in workspace.episodes("losses") if not line["validate"]]
    assert sum(state["passes"]) == pytest.approx(sum(line["reward"] for line in episodes))


def curriculum_of(workspace: Workspace, run: str) -> dict[str, Any]:
    """What the last checkpoint has of the order of tasks."""
    checkpoint = max((workspace.runs / run / "checkpoints").glob("global_step_*/data.pt"))
    loader = torch.load(checkpoint, weights_only=False)
    state: dict[str, Any] = loader["_sampler_iter_state"]["sampler_iter_state"]
    return state


@pytest.mark.parametrize("preset", [preset.value for preset in Preset])
def test_every_preset_trains(workspace: Workspace, preset: str) -> None:
    short = ["trainer.steps=2", "trainer.val_every=0", "trainer.val_ends=false", "trainer.save_every=0"]
    name = f"preset-{preset}"
    done = workspace.run(
        "train", "recipes/quickstart.yaml", f"name={name}", *SMALL, *short, f"algorithm.preset={preset}"
    )
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in workspace.metrics(name)][-2:] == [1, 2]
    assert all(row["grad_norm"] > 0 for row in workspace.metrics(name) if row["step"])
