"""Measures pass@1 of a model on a dataset: the agent loop of training plays every task once, greedily.

The measurement is the framework's own validation, so that its result and a validation in training are comparable.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train import temporary
from aworld_train.adapter.base import RunMode, TrainingFramework, framework_of
from aworld_train.agent import check_agent
from aworld_train.dataset import check_files
from aworld_train.errors import AworldTrainError, ModelError, TrainingFailure, UsageError
from aworld_train.evaluation.interval import wilson_interval
from aworld_train.json_lines import JsonLinesTail
from aworld_train.masking import mask
from aworld_train.model.check import check_model
from aworld_train.model.tool_parser import check_tool_parser
from aworld_train.recipe import LoadedRecipe, Recipe
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.interpolation import escape
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.tree import merge
from aworld_train.training.environment import run_environment
from aworld_train.training.first_prompt import FirstPromptCheck
from aworld_train.training.measurement_folder import keep_evaluation
from aworld_train.training.progress import Progress, Status
from aworld_train.training.run import terminate_as_interrupt
from aworld_train.training.run_record import EpisodeCounts
from aworld_train.training.stall import StallWatch
from aworld_train.training.start import run_plan


@dataclass(frozen=True)
class EvalReport:
    """The result of a measurement.

    Attributes:
        accuracy: Share of correct tasks among those that could be scored; None if none could.
        interval: 95 % Wilson score interval of the accuracy.
        n: Number of tasks scored.
        errors: Number of tasks that could not be scored; no share includes them.
        tool_calls: Number of tool calls, over all tasks.
        tool_errors: How many of these calls returned an error.
        correct_with_tool: Share of the correct tasks in which a tool was called.
        outcomes: Number of episodes by outcome.
        unscored: Number of errors in which an answer could not be scored, by scorer and reason.
        parts: Mean of each named part of the scores.
        suspicions: Number of tasks by sign of reward hacking.
        seconds: Its duration.
        run_dir: The folder with its episodes; None where none are kept.
    """

    model: str
    dataset: str
    accuracy: float | None
    interval: tuple[float, float] | None
    n: int
    errors: int
    tool_calls: int
    tool_errors: int
    correct_with_tool: float | None
    outcomes: dict[str, int]
    unscored: dict[str, int]
    parts: dict[str, float]
    suspicions: dict[str, int]
    seconds: float
    run_dir: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def evaluate(
    loaded: LoadedRecipe,
    *,
    checkpoint: Path | None,
    dataset: Path | None,
    limit: int,
    progress: Progress,
    runs: Path = Path("runs"),
) -> EvalReport:
    """Measure a model.

    Args:
        loaded: The recipe with agent, tools, reward and lengths.
        checkpoint: A Hugging Face model directory or a checkpoint folder of a run; None measures ``model.path``.
        dataset: Tasks; None for the recipe's ``dataset.val``.
        limit: Most tasks; -1 for all.
        progress: Shows the progress.
        runs: Where a run folder with the episodes is made.

    Raises:
        AworldTrainError: Something is missing, or the measurement failed.
    """
    recipe = loaded.recipe
    framework = framework_of(recipe)
    directory = str(model_directory(checkpoint, framework)) if checkpoint else None
    check_model(directory or recipe.model.location)
    check_agent(asdict(recipe.agent))
    files = [dataset] if dataset else recipe.dataset.val_files
    if not files:
        raise UsageError(
            f"The recipe {recipe.name} has no dataset to measure on: set dataset.val, or name one with --dataset."
        )
    tasks = check_files(files)
    check_rewards(recipe, tasks.scorers, tasks.answer_schemas)
    source = recipes.to_source(recipe)
    model = escape(directory) if directory else source["model"]["path"]
    data = escape(str(tasks.path)) if dataset else source["dataset"]["val"]
    measured = recipes.read(
        merge(
            loaded.unresolved,
            {
                "model": {"path": model},
                # Frameworks set up training too; it gets the same tasks and never takes a step.
                "dataset": {"train": data, "val": data, "val_limit": limit},
                "trainer": {
                    "epochs": None,
                    "batch_size": recipe.cluster.ranks,
                    "minibatch_size": None,
                    "microbatch_size": 1,
                },
                "algorithm": {"kl_coef": 0.0, "kl_reward_coef": 0.0},
                "rollout": {"val_n": 1, "val_temperature": 0.0, "val_top_p": 1.0},
                # A measurement runs on this machine.
                "cluster": {"launcher": "local", "nodes": 1},
            },
        )
    ).recipe
    expected = tasks.rows if limit < 0 else min(limit, tasks.rows)
    with terminate_as_interrupt(), _folder() as folder:
        report = _Measurement(measured, framework, folder, expected).run(tasks.scorers, progress)
        kept = keep_evaluation(folder, runs, loaded, report.to_json())
        return replace(report, run_dir=str(kept) if kept else None)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for a measurement, which is removed unless the measurement fails."""
    folder = temporary.make("eval")
    keep = True
    try:
        (folder / "logs").mkdir()
        (folder / "traces" / "validation").mkdir(parents=True)
        yield folder
        keep = False
    except AworldTrainError as error:
        raise type(error)(f"{error.message} What was written is kept in {folder}.") from error
    except KeyboardInterrupt:
        keep = False
        raise
    finally:
        (temporary.release if keep else temporary.remove)(folder)


class _Measurement:
    """Plays each task of a dataset once, in a separate folder."""

    def __init__(self, recipe: Recipe, framework: TrainingFramework, folder: Path, expected: int):
        self._recipe, self._framework = recipe, framework
        self._folder, self._expected = folder, expected
        self._lines: list[dict[str, Any]] = []
        self._tail = JsonLinesTail(folder / "traces" / "episodes.jsonl")
        self._stall = StallWatch(recipe.trainer.stall_timeout, folder)

    def run(self, scorers: Iterable[str], progress: Progress) -> EvalReport:
        """Play all tasks.

        Raises:
            AworldTrainError: The tasks could not be played, or none could be scored.
        """
        began = time.monotonic()
        recipe = self._recipe
        remark = check_tool_parser(recipe.model.location, recipe.agent.tool_parser)
        plan = self._framework.compile(recipe, self._folder, RunMode.measure)
        with (
            run_environment(recipe, lambda line: progress.note(mask(line)), scorers) as environment,
            progress,
        ):
            if remark:
                progress.note(remark)
            self._stall.environment = environment
            self._stall.reset()
            with FirstPromptCheck(recipe, plan, environment, progress.note) as prompts:
                run_plan(
                    self._framework,
                    plan,
                    self._folder,
                    environment,
                    recovery_timeout=recipe.env.recovery_timeout,
                    metrics_file=self._folder / "logs" / "metrics.jsonl",
                    watch=lambda: self._watch(progress) or prompts.reason_to_stop(),
                    worst_cause=self._last_cause,
                )
        self._read()
        model, files = recipe.model.location, recipe.dataset.val_files
        assert model is not None
        dataset = ", ".join(map(shown, files))
        return _report(shown(model), dataset, self._lines, self._expected, time.monotonic() - began)

    def _watch(self, progress: Progress) -> str | None:
        if self._read():
            self._stall.reset()
        progress.update(
            Status(
                phase="evaluating" if self._lines else "starting",
                step=0,
                steps=0,
                episodes=len(self._lines),
                episodes_expected=self._expected,
                tool_calls=sum(line.get("tool_calls", 0) for line in self._lines),
            ),
            milestone=False,
        )
        return self._stall.reason(f"{len(self._lines)} of {self._expected} tasks were played.")

    def _read(self) -> bool:
        """Read the episodes that ended since the last call; returns whether there were any."""
        lines = self._tail.read()
        self._lines.extend(line for line in lines if not line.get("retried"))
        return bool(lines)

    def _last_cause(self) -> str | None:
        return next((line["cause"] for line in reversed(self._lines) if line.get("cause")), None)


def model_directory(checkpoint: Path, framework: TrainingFramework) -> Path:
    """The Hugging Face directory of a checkpoint: the folder itself, or the one that the framework keeps inside it.

    Raises:
        ModelError: There is none.
    """
    if (checkpoint / "config.json").is_file():
        return checkpoint
    model = framework.model_in(checkpoint)
    if model is None:
        raise ModelError(
            f"{checkpoint} is neither a Hugging Face model directory nor a checkpoint of a run "
            "(RUNS/<name>/checkpoints/global_step_N)."
        )
    return model


def _report(
    model: str, dataset: str, lines: list[dict[str, Any]], expected: int, seconds: float
) -> EvalReport:
    scored = [line for line in lines if line.get("reward") is not None]
    if not scored:
        causes = sorted({str(line["cause"]) for line in lines if line.get("cause")})
        raise TrainingFailure(f"No task could be scored: {'; '.join(causes) or 'no episode was played'}.")
    correct = [float(line["scores"].get("acc", line["reward"])) for line in scored]
    with_tool = sum(c for c, line in zip(correct, scored, strict=True) if line["tool_calls"])
    tally = EpisodeCounts()
    for line in lines:
        tally.add(line)
    low, high = wilson_interval(sum(correct), len(scored))
    return EvalReport(
        model=model,
        dataset=dataset,
        accuracy=round(sum(correct) / len(scored), 6),
        interval=(round(low, 4), round(high, 4)),
        n=len(scored),
        errors=expected - len(scored),
        tool_calls=sum(line.get("tool_calls", 0) for line in lines),
        tool_errors=sum(line.get("tool_errors", 0) for line in lines),
        correct_with_tool=round(with_tool / sum(correct), 4) if sum(correct) else None,
        outcomes=dict(tally.outcomes),
        unscored=dict(tally.unscored),
        parts={name: round(mean, 6) for name, mean in tally.part_means.items()},
        suspicions=dict(tally.suspicions),
        seconds=round(seconds, 1),
    )
