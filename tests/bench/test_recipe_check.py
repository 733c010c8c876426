"""What it costs to refuse a wrong recipe, beside what VeRL's own command says about the same mistakes.

``main_ppo --cfg job`` composes VeRL's configuration and prints it, which is all that VeRL offers to look at a
configuration before a run. The mistakes that are about its own keys and values are given to it as Hydra's overrides.
"""

import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wrong_recipes
from tests.wrong_recipes import FILES, make_workplace

MAX_CPU_SECONDS = 0.6
MORE_RUNS = 2
CLI = str(Path(sys.executable).parent / "aworld-train")
AS_OVERRIDES = {
    "key-typo": ["trainer.total_training_setps=5"],
    "key-in-the-wrong-section": ["trainer.temperature=0.7"],
    "type-number-in-quotes": ["trainer.total_training_steps='20'"],
    "type-fraction-for-a-count": ["trainer.total_training_steps=2.5"],
    "value-negative-batch": ["data.train_batch_size=-8"],
    "value-top-p-in-percent": ["actor_rollout_ref.rollout.top_p=95"],
    "value-engine-typo": ["actor_rollout_ref.rollout.name=vlm"],
    "name-estimator-typo": ["algorithm.adv_estimator=grop"],
    "name-logger-typo": ["trainer.logger=[wandb,tensorbord]"],
    "name-policy-loss": ["actor_rollout_ref.actor.policy_loss.loss_mode=gpso"],
    "raw-unknown": ["actor_rollout_ref.actor.ppo_epoch=2"],
    "raw-wrong-type": ["actor_rollout_ref.actor.ppo_epochs=two"],
    "size-minibatch-by-batch": ["data.train_batch_size=16", "actor_rollout_ref.actor.ppo_mini_batch_size=12"],
    "size-batch-by-microbatch": [
        "actor_rollout_ref.actor.ppo_mini_batch_size=10",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
    ],
    "file-dataset-missing": ["data.train_files=data/nothing.parquet"],
}
"""By the name of a wrong recipe, its mistake in VeRL's keys."""


def cpu_seconds(command: list[str], folder: Path) -> tuple[float, int]:
    """User and system time of one run of ``command``, and its exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_a_wrong_recipe_is_refused_in_a_fraction_of_a_second(tmp_path: Path) -> None:
    make_workplace(tmp_path)
    ours, caught = {}, 0
    for file in FILES:
        wrong = wrong_recipes.read(file)
        shutil.copy(file, tmp_path)
        command = [CLI, "recipe", "check", file.name, *wrong.overrides]
        seconds, code = cpu_seconds(command, tmp_path)
        for _ in range(
            MORE_RUNS if seconds > MAX_CPU_SECONDS else 0
        ):  # what else runs on the machine only adds
            seconds = min(seconds, cpu_seconds(command, tmp_path)[0])
        (tmp_path / file.name).unlink()
        ours[file.stem] = seconds
        caught += code != 0
    verl = [sys.executable, "-m", "verl.trainer.main_ppo", "--cfg", "job"]
    theirs = {name: cpu_seconds([*verl, *overrides], tmp_path) for name, overrides in AS_OVERRIDES.items()}
    same = [ours[name] for name in AS_OVERRIDES]
    slowest = max(ours, key=lambda name: ours[name])
    median = statistics.median(ours.values())
    print(
        f"recipe check: {caught} of {len(FILES)} refused, at the median {median:.2f} s of CPU, "
        f"at most {ours[slowest]:.2f} s ({slowest})\n"
        f"the {len(theirs)} mistakes in VeRL's keys: recipe check {len(same)} refused, {statistics.median(same):.2f} s;"
        f" main_ppo --cfg job {sum(code != 0 for _, code in theirs.values())} refused, "
        f"{statistics.median(seconds for seconds, _ in theirs.values()):.2f} s\n"
        f"refused by main_ppo: {', '.join(name for name, (_, code) in theirs.items() if code != 0)}"
    )
    assert caught == len(FILES)
    assert ours[slowest] <= MAX_CPU_SECONDS
