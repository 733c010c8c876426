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

STEPS = 3
RECIPE = "recipes/quickstart-distill.yaml"


def test_each_token_is_trained_by_what_the_teacher_says_of_it_after_a_kill_too(workspace: Workspace) -> None:
    teacher = workspace.quickstart()["checkpoint"]
    command = ["train", RECIPE, "name=taught", *SMALL, f"trainer.steps={STEPS}", "trainer.val_every=0"]
    command += ["trainer.val_ends=false"]
    process = workspace.start(*command)
    run = workspace.runs / "taught"
    # VeRL writes a step's checkpoint before its metrics.
    wait_for("step", lambda: steps_of(run)[-1:] == [1], 600, process)
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
def test_the_recipe_brings_the_student_to_its_teacher(workspace: Workspace) -> None:
    for recipe, name in (("recipes/quickstart.yaml", "master"), (RECIPE, "pupil")):
        teacher = ["distill.teacher=runs/master"] if name == "pupil" else []
        done = workspace.run("train", recipe, f"name={name}", *teacher, "--quiet", seconds=1200)
        assert done.returncode == 0, done.stderr
    divergences = [row["teacher_kl"] for row in workspace.metrics("pupil")[1:]]
    # Of about 1,600 sampled tokens a step, so single steps scatter.
    assert sum(divergences[-4:]) / 4 < 0.75 * sum(divergences[:2]) / 2, divergences
    master, pupil = (workspace.summary(name)["val"]["after"]["accuracy"] for name in ("master", "pupil"))
    assert pupil > master - 0.05
