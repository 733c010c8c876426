"""A second training framework, as another package would bring it: its model learns to use the calculator.

A step "trains" by adding 1 to the skill that is kept beside the model. Everything else is the package's own.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from aworld_train.adapter.base import Checkpoint, RunPlan, StepRow, TrainingFramework
from aworld_train.adapter.episodes.files import episode_files, to_yaml
from aworld_train.adapter.episodes.play_single import play_row
from aworld_train.json_lines import JsonLinesTail
from aworld_train.model.turns import leave_out_torch
from aworld_train.recipe.schema import Recipe
from tests.calculator_model import SKILL, CalculatorModel
from tests.warm import STAND_IN_VARIABLE


class Counting(TrainingFramework):
    name, packages = "counting", ("pyyaml",)
    owned_keys: Mapping[str, str] = {"steps": "trainer.steps says how many there are."}

    def compile(self, recipe: Recipe, folder: Path) -> RunPlan:
        config = self.composed(recipe, folder)
        python = os.environ.get(STAND_IN_VARIABLE, sys.executable)
        return RunPlan(
            files={"counting.yaml": to_yaml(config), **episode_files(recipe)},
            config="counting.yaml",
            command=(python, "-m", "tests.second_framework", str(folder.resolve())),
            environment=lambda start: {"COUNTING_METRICS": str(start.metrics), "TMPDIR": str(start.private)},
            without_first_validation=("--no-first-validation",),
        )

    def composed(self, recipe: Recipe, folder: Path) -> dict[str, Any]:
        data, trainer = recipe.dataset, recipe.trainer
        paths = {"model": recipe.model.path, "train": data.train, "val": data.val}
        sizes = {
            "steps": trainer.steps,
            "batch": trainer.batch_size,
            "n": recipe.rollout.n,
            "limit": data.val_limit,
        }
        return {name: str(Path(path or "").resolve()) for name, path in paths.items()} | sizes | recipe.raw

    def errors_in(self, log: str) -> list[str]:
        return [line for line in log.splitlines() if "Error" in line]

    def step_rows(self, file: Path) -> Any:
        return StepReader(file)

    def last_checkpoint(self, folder: Path) -> Checkpoint | None:
        steps = [int(path.parent.name) for path in folder.glob("*/whole")]
        return Checkpoint(max(steps), folder / str(max(steps)) / "model") if steps else None

    def model_in(self, checkpoint: Path) -> Path | None:
        return checkpoint / "model" if (checkpoint / "model" / "config.json").is_file() else None

    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> Any:
        return CalculatorModel(Path(recipe.model.path or ""))


class StepReader:
    def __init__(self, file: Path):
        self.lines = JsonLinesTail(file, json.loads)

    def read(self) -> list[StepRow]:
        return [StepRow(**line, raw=line["figures"]) for line in self.lines.read()]


async def play(folder: Path, model: CalculatorModel, rows: list[Any], step: int, validate: bool) -> float:
    lengths = {"max_prompt_tokens": 2000, "max_response_tokens": 2000}
    played = [
        await play_row(folder, model, row, {"temperature": 0.0}, step=step, validate=validate, **lengths)
        for row in rows
    ]
    return sum(episode.score.value or 0.0 for episode in played if episode.score) / len(played)


async def main(folder: Path, validate_first: bool) -> None:
    config = yaml.safe_load((folder / "counting.yaml").read_text())
    train, val = (pq.read_table(config[name]).to_pylist() for name in ("train", "val"))
    val = val if config["limit"] < 0 else val[: config["limit"]]
    last = Counting().last_checkpoint(folder / "checkpoints")
    done, source = last or Checkpoint(0, Path(config["model"]))
    model = CalculatorModel(source)

    async def validated(step: int) -> None:
        await play(folder, model, val, step, validate=True)
        report(step=step, figures={}, validated=True)

    def at(boundary: str) -> None:
        """Be killed here, once, if the recipe says so."""
        if config.get("kill_once") == boundary and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    at("began")
    if validate_first:
        await validated(done)
    at("validated")
    for step in range(done + 1, config["steps"] + 1):
        reward = await play(folder, model, train[: config["batch"]] * config["n"], step, validate=False)
        if step == config.get("fail_at") and not last:
            raise ArithmeticError("a fault of the framework's own")
        # At step 1 in every start; at a later one only in a start that began before the step ahead of it.
        if step == config.get("kill_at") and (step == 1 or step > done + 1):
            os.kill(os.getpid(), signal.SIGKILL)
        model.skill += 1
        at(f"played {step}")
        if step % config.get("save_every", 1) == 0 or step == config["steps"]:
            checkpoint = folder / "checkpoints" / str(step)
            shutil.copytree(source, checkpoint / "model", dirs_exist_ok=True)
            (checkpoint / "model" / SKILL).write_text(str(model.skill))
            at(f"half saved {step}")
            (checkpoint / "whole").touch()
            at(f"saved {step}")
        report(step=step, figures={"reward": reward, "loss": 1 / model.skill}, validated=False)
        at(f"reported {step}")
    await validated(config["steps"])
    at("done")


def report(**line: Any) -> None:
    with Path(os.environ["COUNTING_METRICS"]).open("a") as metrics:
        metrics.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    leave_out_torch()
    asyncio.run(main(Path(sys.argv[1]), "--no-first-validation" not in sys.argv))
