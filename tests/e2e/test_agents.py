"""Agents that are not ours are trained by VeRL as they are: AWorld, a framework's, and a plain program."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.env import down, up
from tests.aworld_environment import aworld_python, frameworks_python
from tests.canaries import MARK, SECTIONS, Watch, found_in, plant
from tests.e2e.conftest import REPOSITORY, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2700)]

AGENTS = REPOSITORY / "tests" / "data" / "agents"
EXAMPLES = REPOSITORY / "recipes" / "agents"
STEPS, TASKS = 1, 8
SMALL = [
    f"trainer.steps={STEPS}",
    "trainer.batch_size=2",
    "trainer.microbatch_size=4",
    f"trainer.save_every={STEPS}",
    f"trainer.val_every={STEPS}",
    "rollout.n=2",
    f"dataset.val_limit={TASKS}",
    # Frameworks say more than the question.
    "dataset.max_prompt_tokens=400",
    "rollout.max_response_tokens=256",
]


def train(
    workspace: Workspace, name: str, *overrides: str, python: Path | None = None
) -> list[dict[str, Any]]:
    """Train; what its episodes left behind."""
    done = workspace.run(
        "train",
        "recipes/quickstart.yaml",
        f"name={name}",
        *SMALL,
        *overrides,
        "--json",
        seconds=1200,
        python=python,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["status"] == "completed"
    assert summary["steps_done"] == STEPS
    assert summary["episodes"] == STEPS * 2 * 2
    # What was sampled is what is trained on: the trainer finds the sampler's probabilities again.
    rows = workspace.metrics(name)[1:]
    assert all(row["rollout_probs_diff_max"] < 1e-4 for row in rows), rows
    # What was lost and played again is told in a line of its own.
    return [line for line in workspace.episodes(name) if not line.get("retried")]


def results(episodes: list[dict[str, Any]]) -> dict[int, tuple[float, int, int]]:
    """Reward, tool calls and tool errors of each task when the model was measured before the first step.

    The model may write an expression that its tool cannot read: that is an error whoever asks.
    """
    return {
        line["index"]: (line["reward"], line["tool_calls"], line["tool_errors"])
        for line in episodes
        if line["validate"] and line["step"] == 0 and "reward" in line
    }


@pytest.fixture
def canaries(workspace: Workspace, tmp_path: Path) -> Iterator[list[str]]:
    """Overrides by which a run takes much of what it says from the environment, its tools' address too."""
    planted = plant(
        workspace.path / tmp_path.name,
        model=workspace.path / "models" / "tiny",
        data=workspace.path / "data" / "arithmetic",
        agent=EXAMPLES / "openai_script.py",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWORLD_TRAIN_STATE", str(workspace.path / "state"))
        tools = up(
            "calculator-mcp-server", name=tmp_path.name, backend="process", owner_pid=os.getpid(), wait=120
        )
        for name, value in planted.items():
            patch.setenv(name, value)
        patch.setenv("CANARY_TOOLS", f"{tools.mcp_url}?by={MARK}tools")
        patch.setenv("MCP_SERVER_TOKEN", tools.token)
        sections = {**SECTIONS, "env": {"docker_dir": None, "url": "${oc.env:CANARY_TOOLS}"}}
        yield [
            f"{section}.{key}={json.dumps(value)}"
            for section, keys in sections.items()
            for key, value in keys.items()
        ]
        down(tools.name)


def test_agents_are_trained_unchanged_and_are_worth_what_our_own_loop_is(
    workspace: Workspace, canaries: list[str]
) -> None:
    """A greedy model answers the same whoever asks: the prompts are the same, token by token.

    And whatever a recipe takes from the environment is in no file, log or command line of the run.
    """
    with Watch(workspace.runs / "script") as watch:
        script = train(workspace, "script", *canaries)
    assert watch.command_lines > 0
    assert any("worker" in file.name for file in watch.ray_files)
    assert watch.leaks == set()
    assert list(found_in(workspace.runs / "script")) == []
    for records in ("logs/*.*", "traces/**/*.jsonl", "*.json*", "*.yaml"):
        files = list((workspace.runs / "script").glob(records))
        assert files
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    aworld = train(
        workspace,
        "aworld",
        f"agent.loop={AGENTS / 'aworld_agents.py'}:CalculatorLoop",
        python=aworld_python(),
    )
    workspace.quickstart()  # our own loop, with the same model before its first step
    measured = results(script)
    own = [
        line for line in workspace.episodes("quickstart") if line["index"] in measured and not line["step"]
    ]
    for episodes in (aworld, script, own):
        assert {line["outcome"] for line in episodes} <= {"answered", "overlong", "format", "max_turns"}
        assert all(line["branches"] == {} for line in episodes)
        assert all(line["rows"] == 1 for line in episodes)
    assert all(sum(line["tool_calls"] for line in episodes) > 0 for episodes in (aworld, script))
    assert len(measured) == TASKS
    assert results(aworld) == measured
    # The quickstart measures 128 of the 400 tasks, and some of these are among them.
    shared = results(own)
    assert len(shared) >= 2
    assert {index: measured[index] for index in shared} == shared


def test_an_agent_of_a_framework_is_trained_and_a_stuck_scorer_costs_its_own_answers(
    workspace: Workspace,
) -> None:
    scorer = f"{REPOSITORY / 'tests' / 'data' / 'scorers.py'}:stuck_at_times"
    episodes = train(
        workspace,
        "framework",
        f"agent.builder={EXAMPLES / 'openai_agents_sdk.py'}:build",
        f"reward.scorer={scorer}",
        "reward.timeout=1",
        python=frameworks_python(),
    )
    assert {line["outcome"] for line in episodes} <= {"answered", "overlong", "format", "max_turns"}
    assert all(line["turns"] >= 1 for line in episodes)
    stuck = [line for line in episodes if line.get("scoring") == "timeout"]
    assert stuck
    for line in stuck:
        assert (line["index"] % 4, line["treatment"], line.get("reward")) == (0, "dropped", None)
        assert f"{scorer} took longer than 1 seconds" in line["cause"]
    for line in episodes:
        if line not in stuck:
            assert line["reward"] in (0.0, 1.0)
    summary, rows = workspace.summary("framework"), workspace.metrics("framework")
    assert summary["val"]["before"]["errors"] == sum(line["validate"] and line["step"] == 0 for line in stuck)
    assert sum(summary["unscored"].values()) == sum(not line["validate"] for line in stuck)
    assert any("characters" in row["reward_parts"] for row in rows[1:])
