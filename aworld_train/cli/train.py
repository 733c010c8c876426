"""`aworld-train train`: calls ``AgentTrainer`` and prints the summary."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import RUNS, OverridesArgument, QuietOption, RecipeArgument
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.training.summary import RunSummary


def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are; this run's is RUNS/<name>.")] = RUNS,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the command, and start nothing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --dry-run: the folder to write the files of the launch into.")
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where the run runs: local, ray, slurm or kubernetes; default: the recipe's cluster.launcher.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the job is submitted; not with the launcher local.")
    ] = False,
    submit: Annotated[
        bool, typer.Option("--submit", help="Submit what the launcher kubernetes has rendered.")
    ] = False,
    quiet: QuietOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary (detached: the job) as one JSON object.")
    ] = False,
) -> None:
    """Train the agent that a recipe describes.

    Exits with 0 only if every step was done; with 1 if the run failed, 2 if the recipe cannot be run, 130 if it was
    interrupted. RUNS/<name>/summary.json says what happened in every case.

    Examples:
        aworld-train train recipes/quickstart.yaml
        aworld-train train recipes/quickstart.yaml name=long trainer.steps=50
        aworld-train train recipes/quickstart.yaml --resume
        aworld-train train recipes/quickstart.yaml --launcher slurm cluster.nodes=2
    """
    from aworld_train import launch
    from aworld_train import recipe as recipes
    from aworld_train.adapter.episodes.files import write_files
    from aworld_train.launch.slurm_variables import cluster_defaults
    from aworld_train.training import AgentTrainer
    from aworld_train.training.framework_processor import FrameworkProcessor
    from aworld_train.training.recipe_checks import recipe_checks
    from aworld_train.training.time_estimate import time_estimate

    if out is not None and not dry_run:
        raise UsageError("--out is where --dry-run writes; a run writes into RUNS/<name> (--runs).")
    changes = [*(overrides or []), *([f"cluster.launcher={launcher}"] if launcher else [])]
    loaded = recipes.read(recipe, changes, cluster_defaults(), also=recipe_checks(runs=runs))
    launch_by = launch.find(loaded.recipe.cluster.launcher.value)
    trainer = AgentTrainer(config=loaded, run_path=str(runs))
    processor = trainer.train_processor
    assert isinstance(processor, FrameworkProcessor)
    estimate = None if resume else time_estimate(processor.checked, runs)
    if dry_run:
        run_dir = processor.run_dir(processor.checked.recipe)
        if out is not None:
            processor.check_run_folder(out)
        planned = launch_by.dry_run(processor, out or run_dir)
        if out is not None:
            write_files(out, planned.files)
        config = None if out is None else str(out / planned.config)
        if as_json:
            seconds = estimate.seconds if estimate else None
            planned_run = {"run_dir": str(run_dir), "config": config, "seconds": seconds}
            console.print_json({**planned_run, "command": list(planned.command)})
            return
        unknown = f"How long it takes is known after its first step: no run in {runs} has done the same work."
        if not resume:
            console.note(estimate.sentence if estimate else unknown)
        console.note(
            f"The configuration is {config}. The command:"
            if config
            else f"Nothing is written; --out FOLDER writes {', '.join(planned.files)}. The command:"
        )
        typer.echo(shlex.join(planned.command))
        return
    if estimate and not (quiet or as_json):
        console.note(estimate.sentence)
    options = launch.LaunchOptions(resume=resume, quiet=quiet or as_json, detach=detach, submit=submit)
    summary = launch_by.launch(processor, options)
    if summary is None:
        if as_json and (record := launch.read_record(processor.run_dir(processor.checked.recipe))):
            console.print_json(asdict(record))
    elif as_json:
        console.print_json(summary.to_json())
    else:
        print_summary(summary)


def print_summary(summary: "RunSummary") -> None:
    alarms = [f"step {alarm['step']}: {alarm['text']}" for alarm in summary.alarms]
    console.print_line(f"{summary.name}: {summary.status}", "bold")
    rows = {
        "steps": f"{summary.steps_done} of {summary.steps_planned}",
        **(_losses(summary) or _played(summary)),
        "seconds": f"{summary.seconds:.0f}",
        **({"remark": summary.remark} if summary.remark else {}),
        **({"alarms": "\n".join(alarms)} if alarms else {}),
        "model": summary.checkpoint or "–",
        "run folder": summary.run_dir,
        "learning curve": str(Path(summary.run_dir) / "learning_curve.png"),
    }
    console.print_facts(rows)


def _losses(summary: "RunSummary") -> dict[str, str]:
    """The rows of supervised training; empty for a run that plays episodes."""
    losses = {
        "loss": summary.loss,
        **{f"held-out loss {when}": loss for when, loss in summary.val_loss.items()},
    }
    known = {name: f"{loss:.4g}" for name, loss in losses.items() if loss is not None}
    return known if not summary.episodes else {}


def _played(summary: "RunSummary") -> dict[str, str]:
    before, after, used = summary.val["before"], summary.val["after"], summary.correct_with_tool
    return {
        "episodes": f"{summary.episodes} ({summary.trained_episodes} trained on)",
        **({"not scored": _counts(summary.unscored)} if summary.unscored else {}),
        **({"to be looked at": _counts(summary.suspicions)} if summary.suspicions else {}),
        "tool calls": f"{summary.tool_calls} ({summary.tool_errors} errors)",
        "accuracy before": _accuracy(before.accuracy, before.n, before.errors),
        "accuracy after": _accuracy(after.accuracy, after.n, after.errors),
        "correct answers that used a tool": "–" if used is None else f"{used:.1%}",
    }


def _accuracy(value: float | None, n: int, errors: int) -> str:
    if value is None:
        return "–"
    return f"{value:.1%} of {n} tasks" + (f"; {errors} could not be measured" if errors else "")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
