"""What sampling ahead gains where tools are slow now and then: seconds of a trained episode by mode, on the same cores.

The calculator takes a time that is lognormal, and at the 99th percentile 20 times its median. Beside the figures is the
least that the slower side allows: updates without any wait, or all episodes under way all the time; where the trainer's
processes sample too, both together without the time in which they only wait for tools.
"""

import math
import shutil
import statistics
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, SMALL, Workspace
from tests.e2e.test_asynchronous import training_times, turns_of

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

MEDIAN_SECONDS, TAIL = 0.15, 20.0
SIGMA = math.log(TAIL) / statistics.NormalDist().inv_cdf(0.99)
STEPS, TASKS, EPISODES, AHEAD = 12, 4, 4, 2
ANSWER = "    try:\n        return [TextContent("
OVERRIDES = [
    *SMALL,
    *(f"trainer.steps={STEPS}", "trainer.save_every=0", "trainer.val_every=0", "trainer.val_ends=false"),
    *(f"trainer.batch_size={TASKS}", f"rollout.n={EPISODES}", "trainer.microbatch_size=8"),
]
MODES = {
    "sync": [],
    "colocate_async": [f"trainer.async.{key}={AHEAD}" for key in ("staleness", "warmup_batches")],
    "separate_async": [f"trainer.async.{key}={AHEAD}" for key in ("staleness", "warmup_batches")],
}


def slow_calculator(folder: Path) -> Path:
    shutil.copytree(REPOSITORY / "docker" / "calculator-mcp-server", folder)
    server = folder / "server.py"
    text = server.read_text()
    assert ANSWER in text
    wait = f"    await asyncio.sleep(random.lognormvariate({math.log(MEDIAN_SECONDS)}, {SIGMA}))\n"
    server.write_text(
        text.replace(ANSWER, wait + ANSWER).replace("import asyncio", "import asyncio\nimport random")
    )
    return folder


def seconds_per_episode(workspace: Workspace, mode: str, calculator: Path) -> tuple[float, float, float]:
    """Of a trained episode, after the first step: as it was, of the updates alone, and the least of the slower side."""
    name = f"tail-{mode}"
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name={name}", f"trainer.mode={mode}", *OVERRIDES),
        *(*MODES[mode], f"env.docker_dir={calculator}"),
        seconds=1800,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in workspace.metrics(name) if row["step"] > 1]
    trained = sum(row["trained_episodes"] for row in rows)
    wall = sum(row["seconds"] for row in rows)
    updates = wall - sum(row["verl"]["timing_s/gen"] for row in rows)
    if mode == "colocate_async":
        least = busy_share(workspace, name) * wall / trained
    else:
        played = statistics.mean(line["seconds"] for line in workspace.episodes(name) if line["step"] > 1)
        batches = 1 if mode == "sync" else 1 + AHEAD
        least = max(updates / trained, played / (batches * TASKS * EPISODES))
    return wall / trained, updates / trained, least


def busy_share(workspace: Workspace, name: str) -> float:
    """Of the time from the second step on, that in which a turn is sampled or the weights are trained."""
    turns = turns_of(workspace, name)
    training = training_times(workspace, name, turns)
    begin, end = training[0][1], training[-1][1]
    busy, last = 0.0, begin
    for since, until in sorted([*training, *((turn.began, turn.ended) for turn in turns)]):
        busy += max(0.0, min(until, end) - max(since, last))
        last = max(last, min(until, end))
    return busy / (end - begin)


def test_slow_tools_hold_up_a_run_that_samples_ahead_less(workspace: Workspace, tmp_path: Path) -> None:
    calculator = slow_calculator(tmp_path / "slow-calculator-mcp-server")
    figures = {mode: seconds_per_episode(workspace, mode, calculator) for mode in MODES}
    sync = figures["sync"][0]
    for mode, (wall, updates, least) in figures.items():
        sys.stdout.write(
            f"| {mode} | {wall:.3f} s an episode | {wall / sync:.2f} of sync | bound {least:.3f} s "
            f"(updates {updates:.3f} s) | {wall / least:.2f} of the bound |\n"
        )
        assert mode == "sync" or wall <= 1.10 * least
    assert figures["separate_async"][0] < sync
