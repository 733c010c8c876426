"""Training that samples ahead: staleness is within its bound, and each token was sampled with the weights it says."""

import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from aworld_train.store.content import StoredAgent
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import SMALL, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS, TASKS, BOUND = 4, 4, 2


@pytest.mark.parametrize(
    ("mode", "overrides"),
    [
        ("colocate_async", []),
        (
            "separate_async",
            ["rollout.samplers=2", "trainer.async.sync_every=2", f"trainer.minibatch_size={TASKS // 2}"],
        ),
    ],
)
def test_tokens_have_the_probabilities_of_the_weights_that_sampled_them(
    workspace: Workspace, mode: str, overrides: list[str]
) -> None:
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name={mode}", f"trainer.mode={mode}", *SMALL, *overrides),
        *("trainer.microbatch_size=8", f"trainer.steps={STEPS}", f"trainer.batch_size={TASKS}"),
        *("trainer.keep_checkpoints=9", f"trainer.async.staleness={BOUND}"),
        f"trainer.async.warmup_batches={BOUND}",
    )
    assert done.returncode == 0, done.stderr
    rows = workspace.metrics(mode)[1:]
    assert [row["trained_episodes"] for row in rows] == [TASKS * 4] * STEPS
    assert all(0 <= row["staleness"] <= row["max_staleness"] <= BOUND for row in rows), rows
    assert any(row["staleness"] > 0 for row in rows), rows
    differences = compared(workspace, mode)
    assert len(differences) > 1, "versions"
    assert max(differences.values()) < 1e-5, differences


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_run_learns_as_much_whoever_samples_when(workspace: Workspace, mode: str, seed: int) -> None:
    name = f"learns-{mode}-{seed}"
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name={name}", f"trainer.mode={mode}", f"trainer.seed={seed}"),
        *(
            "dataset.val_limit=200",
            "trainer.val_every=8",
            "trainer.save_every=0",
            "trainer.async.staleness=2",
        ),
    )
    assert done.returncode == 0, done.stderr
    rows, val = workspace.metrics(name)[1:], workspace.summary(name)["val"]
    staleness = [row.get("staleness", 0.0) for row in rows]
    sys.stdout.write(
        f"| {mode} | {seed} | {val['before']['accuracy']:.3f} | {val['after']['accuracy']:.3f} | "
        f"{sum(staleness) / len(rows):.2f} | {max(row.get('max_staleness', 0) for row in rows)} | "
        f"{sum(row['seconds'] for row in rows):.0f} s |\n"
    )
    assert val["after"]["accuracy"] >= 0.9
    assert all(row.get("max_staleness", 0) <= 2 for row in rows)
    assert (sum(staleness) > 0) == (mode != "sync")


def compared(workspace: Workspace, name: str) -> dict[int, float]:
    """By version, the largest difference of a recorded probability from that of the version's checkpoint."""
    largest: dict[int, float] = {}
    with open_run_store(open_run(name, workspace.runs)) as store:
        for head in store.episodes("phase=train and trained_step>0"):
            content = store.episode(head.id).content
            assert content is not None
            for agent in content.agents:
                for version, difference in differences_of(agent, workspace, workspace.runs / name):
                    largest[version] = max(largest.get(version, 0.0), difference)
    return largest


def differences_of(agent: StoredAgent, workspace: Workspace, run: Path) -> Iterator[tuple[int, float]]:
    contexts: list[list[int]] = []
    for node in agent.nodes:
        before = contexts[node.parent] if node.parent >= 0 else []
        contexts.append([*before, *node.token_ids])
        for place, logprob in enumerate(node.token_logprobs):
            weights = node.weights_of(place)
            assert weights is not None and weights[0] == weights[1]
            model = load(workspace.path / "models" / "tiny", run, weights[0])
            known = model(tuple(contexts[-1]))[len(before) + place - 1][node.token_ids[place]]
            yield weights[0], abs(math.exp(float(known)) - math.exp(logprob))


@cache
def load(start: Path, run: Path, version: int) -> Any:
    folder = run / "checkpoints" / f"global_step_{version}" / "actor" / "huggingface"
    model = AutoModelForCausalLM.from_pretrained(folder if version else start, dtype=torch.float32).eval()

    @cache
    def logprobs(tokens: tuple[int, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([tokens])).logits[0].log_softmax(-1)

    return logprobs
