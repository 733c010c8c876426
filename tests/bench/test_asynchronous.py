"""What sampling ahead gains where tools are slow now and then: seconds of a trained episode by mode, on the same cores.

The calculator takes a time that is lognormal, and at the 99th percentile 20 times its median. Beside the figures is the
least that the slower side allows: updates without any wait, or all episodes under way all the time.
"""

import math
import shutil
import statistics
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, SMALL, Workspace

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
    """Of a trained episode, after the first step: as it was, of the updates alone, and of an episode while played."""
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name=tail-{mode}", f"trainer.mode={mode}", *OVERRIDES),
        *(*MODES[mode], f"env.docker_dir={calculator}"),
        seconds=1800,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in workspace.metrics(f"tail-{mode}") if row["step"] > 1]
    trained = sum(row["trained_episodes"] for row in rows)
    wall = sum(row["seconds"] for row in rows)
    waited = sum(row["verl"]["timing_s/gen"] for row in rows)
    played = [line["seconds"] for line in workspace.episodes(f"tail-{mode}") if line["step"] > 1]
    return wall / trained, (wall - waited) / trained, statistics.mean(played)


def test_slow_tools_hold_up_a_run_that_samples_ahead_less(workspace: Workspace, tmp_path: Path) -> None:
    calculator = slow_calculator(tmp_path / "slow-calculator-mcp-server")
    figures = {mode: seconds_per_episode(workspace, mode, calculator) for mode in MODES}
    sync = figures["sync"][0]
    for mode, (wall, update, playing) in figures.items():
        batches = 1 if mode == "sync" else 1 + AHEAD
        bound = max(update, playing / (batches * TASKS * EPISODES))
        sys.stdout.write(
            f"| {mode} | {wall:.3f} s an episode | {wall / sync:.2f} of sync | bound {bound:.3f} s "
            f"(updates {update:.3f} s) | {wall / bound:.2f} of the bound |\n"
        )
    assert figures["separate_async"][0] < sync
