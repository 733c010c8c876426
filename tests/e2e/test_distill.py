"""On-policy distillation, for real: a run's model teaches the one before it, token by token."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import SMALL, Workspace, assert_all_gone, descendants, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

STEPS, LONG_STEPS = 3, 40
COSINE = "verl.actor_rollout_ref.actor.optim.lr_scheduler_type=cosine"
RECIPE = "recipes/quickstart-distill.yaml"


def test_each_token_is_trained_by_what_the_teacher_says_of_it_after_a_kill_too(workspace: Workspace) -> None:
    teacher = workspace.quickstart()["checkpoint"]
    command = ["train", RECIPE, "name=taught", *SMALL, f"trainer.steps={STEPS}", "trainer.val_every=0"]
    command += ["trainer.val_ends=false"]
    process = workspace.start(*command)
    run = workspace.runs / "taught"
    # VeRL writes a step's checkpoint before its metrics.
    wait_for("step", lambda: steps_of(run), 600, process)
    everything = descendants(process.pid)
    process.kill()
    process.wait()
    assert_all_gone(everything)
    done = workspace.run(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert "KL to the teacher" in done.stderr
    rows = workspace.metrics("taught")
    assert steps_of(run) == list(range(1, STEPS + 1))
    assert all(row["grad_norm"] > 0 and row["rollout_probs_diff_max"] < 1e-4 for row in rows)
    advantages = advantages_of_teacher(workspace, "taught", teacher)
    for row in rows:
        known = advantages[row["step"]]
        assert len(known) > 100
        assert -math.fsum(known) / len(known) == pytest.approx(row["teacher_kl"], abs=1e-5)


def steps_of(run: Path) -> list[int]:
    file = run / "metrics.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def advantages_of_teacher(workspace: Workspace, run: str, teacher: str) -> dict[int, list[float]]:
    """By step those of all trained tokens, each checked against the teacher in float64 and what the engine recorded."""
    model = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float64).eval()
    found: dict[int, list[float]] = defaultdict(list)
    with open_run_store(open_run(run, workspace.runs)) as store, torch.inference_mode():
        for head in store.episodes("phase=train"):
            episode = store.episode(head.id)
            assert episode.content is not None
            for number, (row, use) in enumerate(zip(episode.content.rows, episode.rows, strict=True)):
                if use.trained_step is None:
                    continue
                nodes = episode.content.agents[row.agent].nodes
                tokens = torch.tensor([token for node in row.path for token in nodes[node].token_ids])
                logits = model(tokens[None, :-1]).logits[0]
                scored = logits.log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
                for span in (span for span in episode.content.spans(number) if span.own):
                    expected = scored[span.begin - 1 : span.end - 1] - torch.tensor(
                        nodes[span.node].token_logprobs, dtype=torch.float64
                    )
                    used = use.advantages[span.begin - row.prompt_tokens : span.end - row.prompt_tokens]
                    assert used == pytest.approx(expected.tolist(), abs=1e-4)
                    found[use.trained_step] += used
    return found


@pytest.mark.slow
def test_a_longer_run_brings_the_student_to_its_teacher(workspace: Workspace) -> None:
    longer = (f"trainer.steps={LONG_STEPS}", "distill.teacher=runs/master", COSINE)
    for name, recipe, options in (("master", "recipes/quickstart.yaml", ()), ("pupil", RECIPE, longer)):
        done = workspace.run("train", recipe, f"name={name}", *options, "--quiet", seconds=1700)
        assert done.returncode == 0, done.stderr
    master, pupil = (workspace.summary(name) for name in ("master", "pupil"))
    before, after = (
        divergence(workspace, model, step, master["checkpoint"])
        for model, step in ((workspace.path / "models/tiny", 1), (pupil["checkpoint"], LONG_STEPS))
    )
    assert after < before / 10, (before, after)
    assert pupil["val"]["after"]["accuracy"] > master["val"]["after"]["accuracy"] - 0.05


def divergence(workspace: Workspace, student: Path, step: int, teacher: str) -> float:
    """The reverse KL divergence in nats a token, by whole distributions, over the tokens of the pupil's step."""
    models = [
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval() for path in (student, teacher)
    ]
    found: list[float] = []
    with open_run_store(open_run(workspace.runs / "pupil", workspace.runs)) as store, torch.inference_mode():
        for head in store.episodes("phase=train"):
            episode = store.episode(head.id)
            assert episode.content is not None
            for number, (row, use) in enumerate(zip(episode.content.rows, episode.rows, strict=True)):
                if use.trained_step != step:
                    continue
                nodes = episode.content.agents[row.agent].nodes
                tokens = torch.tensor([token for node in row.path for token in nodes[node].token_ids])
                own, taught = (model(tokens[None, :-1]).logits[0].log_softmax(-1) for model in models)
                each = (own.exp() * (own - taught)).sum(-1)
                for span in (span for span in episode.content.spans(number) if span.own):
                    found += each[span.begin - 1 : span.end - 1].tolist()
    assert len(found) > 1000
    return math.fsum(found) / len(found)
