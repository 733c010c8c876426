"""Training that samples ahead: staleness is within its bound, and each token was sampled with the weights it says."""

import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoModelForCausalLM

from aworld_train.store.content import StoredAgent
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import SMALL, Workspace
from tests.e2e.test_losses import curriculum_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS, TASKS, BOUND = 4, 4, 2


def test_tokens_have_the_probabilities_of_the_weights_that_sampled_them(workspace: Workspace) -> None:
    """With all that may be beside it: a loss by age, groups that are replaced, a curriculum.

    Of ``separate_async`` the same is in test_chaos_asynchronous.
    """
    name = "colocate_async"
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name={name}", f"trainer.mode={name}", *SMALL),
        *("dataset.curriculum=difficulty", "rollout.equal_group=resample"),
        *("algorithm.preset=minirl", "algorithm.age_decay=0.5"),
        *("trainer.microbatch_size=8", f"trainer.steps={STEPS}", f"trainer.batch_size={TASKS}"),
        *("trainer.keep_checkpoints=9", f"trainer.async.staleness={BOUND}"),
        f"trainer.async.warmup_batches={BOUND}",
    )
    assert done.returncode == 0, done.stderr
    rows = workspace.metrics(name)[1:]
    assert [row["trained_episodes"] for row in rows] == [TASKS * 4] * STEPS
    assert all(0 <= row["staleness"] <= row["max_staleness"] <= BOUND for row in rows), rows
    assert any(row["staleness"] > 0 for row in rows), rows
    assert any(row["grad_norm"] > 0 for row in rows), rows
    differences = compared(workspace, name)
    assert len(differences) > 1, "versions"
    assert max(differences.values()) < 1e-5, differences
    order = curriculum_of(workspace, name)
    assert sum(order["plays"]) >= STEPS * TASKS + sum(row["resampled_groups"] for row in rows)
    assert sum(order["episodes"]) == 4 * (sum(order["plays"]) - len(order["under_way"]))


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
    meanwhile = share_sampled_while_training(workspace, name) if mode == "separate_async" else 0.0
    sys.stdout.write(
        f"| {mode} | {seed} | {val['before']['accuracy']:.3f} | {val['after']['accuracy']:.3f} | "
        f"{sum(staleness) / len(rows):.2f} | {max(row.get('max_staleness', 0) for row in rows)} | "
        f"{meanwhile:.2f} | {sum(row['seconds'] for row in rows):.0f} s |\n"
    )
    assert val["after"]["accuracy"] >= 0.9
    assert all(row.get("max_staleness", 0) <= 2 for row in rows)
    assert (sum(staleness) > 0) == (mode != "sync")
    assert (meanwhile > 0.1) == (mode == "separate_async")


class Turn(NamedTuple):
    """When a turn was sampled, in Unix time, and by which weights it was begun."""

    began: float
    ended: float
    tokens: int
    version: int


def turns_of(workspace: Workspace, name: str) -> list[Turn]:
    turns = []
    with open_run_store(open_run(name, workspace.runs)) as store:
        for head in store.episodes("phase=train"):
            content = store.episode(head.id).content
            assert content is not None
            for agent in content.agents:
                for call in agent.calls:
                    node = agent.nodes[call.node]
                    assert node.versions is not None
                    ended = call.began + call.seconds
                    turns.append(Turn(call.began, ended, node.token_count, node.versions[0]))
    return turns


def training_times(workspace: Workspace, name: str, turns: list[Turn]) -> list[tuple[float, float]]:
    """When the trainer did not wait for a batch: up to the first turn that begins with the weights of the step."""
    times = []
    for row in workspace.metrics(name)[1:]:
        if begins := [turn.began for turn in turns if turn.version == row["step"]]:
            times.append((min(begins) - row["seconds"] + row["verl"]["timing_s/gen"], min(begins)))
    return times


def share_sampled_while_training(workspace: Workspace, name: str) -> float:
    """Of the sampled tokens, those whose turn was under way while the trainer was."""
    turns = turns_of(workspace, name)
    meanwhile = sum(
        turn.tokens * max(0.0, min(turn.ended, until) - max(turn.began, since)) / (turn.ended - turn.began)
        for since, until in training_times(workspace, name, turns)
        for turn in turns
    )
    return meanwhile / sum(turn.tokens for turn in turns)


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
