"""The main job, for real: VeRL's own trainer, GRPO, episodes with a real MCP server, and an agent that gets better."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aworld_train.model.tiny import SHIPPED
from aworld_train.model.weights import dtype_of
from tests.e2e.conftest import QUICKSTART_STEPS, QUICKSTART_VAL_TASKS, SMALL, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_the_quickstart_teaches_the_model_to_use_its_tool_and_eval_agrees(workspace: Workspace) -> None:
    summary = workspace.quickstart()
    assert summary == workspace.summary("quickstart")
    assert summary["status"] == "completed"
    assert summary["steps_done"] == summary["steps_planned"] == QUICKSTART_STEPS
    before, after = summary["val"]["before"], summary["val"]["after"]
    assert before["n"] == after["n"] == QUICKSTART_VAL_TASKS
    assert 0.15 <= before["accuracy"] <= 0.65
    assert after["accuracy"] - before["accuracy"] >= 0.20
    assert summary["tool_calls"] > 0
    assert summary["correct_with_tool"] > 0.5
    assert summary["episodes"] == QUICKSTART_STEPS * 16 * 8
    assert [row["step"] for row in workspace.metrics("quickstart")] == list(range(QUICKSTART_STEPS + 1))
    # What was sampled is what is trained on: the trainer finds the sampler's probabilities again.
    assert all(row["rollout_probs_diff_max"] < 1e-4 for row in workspace.metrics("quickstart")[1:])
    model = Path(summary["checkpoint"])
    # What training does not change is the input model's, and the rest is what the weights are.
    for file in SHIPPED.iterdir():
        changed = file.name in ("config.json", "model.safetensors", "tiny.json")
        assert changed or (model / file.name).read_bytes() == file.read_bytes()
    shipped, trained = (json.loads((folder / "config.json").read_text()) for folder in (SHIPPED, model))
    assert trained["rope_theta"] == shipped["rope_theta"]
    assert trained["torch_dtype"] == dtype_of(model)

    report = measured(workspace, "--limit", "200", "--name", "agrees")
    assert report["n"] == 200
    assert report["errors"] == 0
    assert report["tool_calls"] > 0
    # The validation has a random part of the tasks. Those that both have: the same weights, greedy, so only rounding in
    # another batch may differ.
    validated = scores(
        line
        for line in workspace.episodes("quickstart")
        if line["validate"] and line["step"] == QUICKSTART_STEPS
    )
    evaluated = scores(workspace.episodes("eval-agrees"))
    common = validated.keys() & evaluated.keys()
    assert len(common) > 40
    assert sum(validated[index] != evaluated[index] for index in common) <= 2


def test_a_recorded_run_is_replayed_without_its_tools(workspace: Workspace) -> None:
    """The trained model is measured with every tool call recorded; and again with nothing there to call."""
    workspace.quickstart()
    reports = [
        measured(
            workspace,
            "--limit",
            "48",
            f"env.cassette.path={workspace.path / 'calls.jsonl'}",
            f"env.cassette.mode={mode}",
            f"env.docker_dir={environment}",
        )
        for mode, environment in (("record", "calculator-mcp-server"), ("replay", "there-is-none"))
    ]
    assert reports[0] == reports[1]
    assert reports[0]["tool_calls"] > 0


def scores(lines: Iterable[dict[str, Any]]) -> dict[int, float]:
    """The scores of tasks, by their number in the dataset."""
    return {line["index"]: line["scores"]["acc"] for line in lines}


def measured(workspace: Workspace, *arguments: str) -> dict[str, Any]:
    """What eval says of the model that the quickstart trained."""
    checkpoint = str(workspace.runs / "quickstart" / "checkpoints" / f"global_step_{QUICKSTART_STEPS}")
    done = workspace.run("eval", "recipes/quickstart.yaml", "--checkpoint", checkpoint, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for name in ("seconds", "run_dir", "latency"):
        del report[name]
    return report


def test_a_run_whose_first_prompts_do_not_fit_ends_before_an_episode(workspace: Workspace) -> None:
    done = workspace.run(
        "train", "recipes/quickstart.yaml", "name=short", *SMALL, "dataset.max_prompt_tokens=20"
    )
    assert done.returncode == 1
    assert (
        "No first prompt fits into dataset.max_prompt_tokens (20): that of the shortest task has "
        in done.stderr
    )
    assert "of them for the schemas of 1 tool (the longest: " in done.stderr
    assert not (workspace.runs / "short" / "traces" / "episodes.jsonl").exists() or not workspace.episodes(
        "short"
    )
