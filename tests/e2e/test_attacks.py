"""A policy that attacks its tools in every other episode: all are counted where they belong, and none has a second try.

pytest -m slow tests/e2e/test_attacks.py
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aworld_train.serving.worker import spawner
from tests.attacking_agent import ENDS_WORKER, HONEST, MOVES, READ_AS_TEXT, SLEEPS
from tests.e2e.conftest import REPOSITORY, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS, TASKS, SAMPLES = 3, 4, 4
EPISODES = STEPS * TASKS * SAMPLES
RUN = (
    "name=attacks",
    f"agent.builder={REPOSITORY / 'tests' / 'attacking_agent.py'}:build",
    "agent.episode_timeout=60",
    f"env.docker_dir={REPOSITORY / 'tests' / 'data' / 'odd-environment'}",
    "env.servers=[odd]",
    "env.workers=4",
    f"trainer.steps={STEPS}",
    f"trainer.batch_size={TASKS}",
    "trainer.microbatch_size=16",
    f"trainer.val_every={STEPS}",
    f"trainer.save_every={STEPS}",
    "dataset.val_limit=1",
    f"rollout.n={SAMPLES}",
    "dataset.max_prompt_tokens=400",
    "rollout.max_response_tokens=256",
)
# Landlock keeps tools from ending their worker, with Linux 6.12 or later.
CAN_END_WORKERS = spawner._landlock_version() < spawner._SCOPES_SINCE
OUTCOMES = {SLEEPS: "timeout", **({ENDS_WORKER: "broken_tools"} if CAN_END_WORKERS else {})}
"""Of the moves after which the model cannot go on."""


def _move(line: dict[str, Any]) -> str:
    """What the agent wrote into its episode's line."""
    (move,) = line["faults"]
    return str(move)


def test_every_attack_is_counted_where_it_belongs_and_none_is_left_out_or_played_again(
    workspace: Workspace,
) -> None:
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", *RUN, "--json"),
        python=Path(sys.executable),  # its agent imports what only a started interpreter finds
    )
    assert done.returncode == 0, done.stderr
    summary, rows = json.loads(done.stdout), workspace.metrics("attacks")
    episodes = [line for line in workspace.episodes("attacks") if not line["validate"]]
    moves = Counter(_move(line) for line in episodes)
    for cause, count in summary["causes"].items():
        sys.stdout.write(f"| {count} | {cause} |\n")
    # Half of them attack, in every way, and each was played once.
    assert len(episodes) == summary["episodes"] == EPISODES
    assert moves[HONEST] == EPISODES // 2 and moves.keys() == {HONEST, SLEEPS, *MOVES}
    assert not any(line.get("retried") for line in episodes)
    assert summary["environment_losses"] == 0
    # What the policy did is trained on, also where it left nothing to answer with.
    assert {line["treatment"] for line in episodes} == {"trained"}
    assert summary["trained_episodes"] == EPISODES
    assert summary["dropped"] == {} and summary["unscored"] == {}
    assert [row["dropped"] for row in rows if row["step"]] == [0] * STEPS
    assert not [alarm for alarm in summary["alarms"] if alarm["kind"].startswith("dropped")]
    # By outcome, and by cause.
    for move, outcome in OUTCOMES.items():
        assert {line["outcome"] for line in episodes if _move(line) == move} == {outcome}
    broken = {outcome: moves[move] for move, outcome in OUTCOMES.items()}
    assert {outcome: summary["outcomes"].get(outcome) for outcome in broken} == broken
    assert summary["outcomes"].keys() <= {
        *broken,
        "answered",
        "overlong",
        "format",
        "max_turns",
        "repetition",
    }
    assert sum(Counter(row["outcomes"]).total() for row in rows if row["step"]) == EPISODES
    for outcome, count in broken.items():
        causes = {cause: n for cause, n in summary["causes"].items() if cause.startswith(f"{outcome}: ")}
        assert sum(causes.values()) == count, summary["causes"]
    assert {line["reward"] for line in episodes if line["outcome"] in broken} == {0.0}
    # A call that gave no result is an error that the model reads.
    read = [
        (_move(line), line["tool_errors"])
        for line in episodes
        if _move(line) not in (HONEST, ENDS_WORKER, *OUTCOMES)
    ]
    assert read and [(move, errors) for move, errors in read if errors != (move not in READ_AS_TEXT)] == []
