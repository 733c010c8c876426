"""What a policy that bombs half of its answers costs: a training run of five steps against the same with wrong numbers.

The runs alternate, and the fastest of each kind counts, by the time of all its steps: what else the machine does can
only add to it. Every bomb has to be trained on with the reward 0, and none is played again.
"""

import json
import os
import shutil
from typing import Any

import pytest

from tests.e2e.conftest import REPOSITORY, Workspace

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "3"))
STEPS, TASKS, SAMPLES = 5, 8, 4
AGENT = REPOSITORY / "tests" / "bombing_agent.py"
OVERRIDES = [
    f"trainer.steps={STEPS}",
    f"trainer.batch_size={TASKS}",
    f"rollout.n={SAMPLES}",
    "trainer.microbatch_size=16",
    "trainer.val_every=100",
    "trainer.save_every=100",
    "dataset.val_limit=4",
    "reward.scorer=math",
]


def train(workspace: Workspace, kind: str) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of all steps, by VeRL's own clock, and the episodes that were trained on."""
    shutil.rmtree(workspace.runs / kind, ignore_errors=True)
    agent = f"agent.builder={AGENT}:{kind}"
    done = workspace.run("train", "recipes/quickstart.yaml", f"name={kind}", agent, *OVERRIDES, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["steps_done"] == STEPS
    assert summary["trained_episodes"] == summary["episodes"] == STEPS * TASKS * SAMPLES
    assert not summary["unscored"]
    lines = workspace.episodes(kind)
    assert not any(line.get("retried") for line in lines)
    (metrics,) = (workspace.runs / kind / "logs").glob("verl-metrics-*.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = sum(row["data"]["timing_s/step"] for row in rows if row["step"] >= 1)
    return seconds, [line for line in lines if not line["validate"]]


def test_a_policy_that_bombs_half_of_its_answers_takes_no_time_from_the_others(workspace: Workspace) -> None:
    seconds: dict[str, list[float]] = {"ordinary": [], "bombing": []}
    for number in range(PAIRS):
        # The first of a pair has a colder machine.
        for kind in sorted(seconds, reverse=number % 2 == 0):
            taken, episodes = train(workspace, kind)
            seconds[kind].append(taken)
            bombs = [line for line in episodes if line["scoring"] == "too_hard"]
            assert {line["reward"] for line in bombs} <= {0.0}
            assert all(line["treatment"] == "trained" for line in bombs)
            # Every second answer; two of the ten bombs are only long, and compared with nothing.
            assert len(bombs) == (0.4 * len(episodes) if kind == "bombing" else 0)
        print(f"five steps: {seconds['bombing'][-1]:.1f} s against {seconds['ordinary'][-1]:.1f} s")
    ratio = min(seconds["bombing"]) / min(seconds["ordinary"])
    print(f"ratio of the fastest: {ratio:.3f}")
    assert ratio <= 1.2
