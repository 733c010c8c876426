"""`aworld-train eval`: calls ``evaluation.measure`` and prints the report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.engine_option import EngineOption, with_engine


def evaluate(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or the name of a shipped recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values to change.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", help="Model directory or checkpoint folder; default: the recipe's model."
        ),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option("--dataset", help="Tasks; default: the recipe's dataset.val.")
    ] = None,
    engine: EngineOption = None,
    limit: Annotated[int, typer.Option("--limit", help="Most tasks; -1 for all.")] = -1,
    runs: Annotated[
        Path, typer.Option("--runs", help="Where the folder with the played episodes is made.")
    ] = Path("runs"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a model: every task once, greedily, with the recipe's agent and tools.

    Exits with 1 if any task could not be scored.

    Examples:

        aworld-train eval recipes/quickstart.yaml --checkpoint runs/quickstart/checkpoints/global_step_10

        aworld-train eval recipes/quickstart.yaml --dataset data/arithmetic/val.parquet --engine vllm --json
    """
    from rich.console import Console

    from aworld_train import recipe as recipes
    from aworld_train.evaluation.measure import evaluate as measure
    from aworld_train.training.progress import progress_for

    report = measure(
        recipes.read(recipe, with_engine(overrides, engine)),
        checkpoint=checkpoint,
        dataset=dataset,
        limit=limit,
        runs=runs,
        progress=progress_for(Console(stderr=True), quiet=quiet or as_json),
    )
    if as_json:
        console.print_json(report.to_json())
    else:
        low, high = report.interval or (0.0, 0.0)
        details: dict[str, Mapping[str, float]] = {
            "not scored": report.unscored,
            "parts": report.parts,
            "to be looked at": report.suspicions,
        }
        console.out.print(
            f"accuracy {report.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}) on {report.n} tasks of "
            f"{report.dataset}\n{report.tool_calls} tool calls, {report.tool_errors} errors; "
            f"{report.errors} tasks could not be scored; {report.seconds:.0f} s"
            + "".join(f"\n{title}: {_counted(each)}" for title, each in details.items() if each)
            + (f"\nepisodes: aworld-train runs episodes {report.run_dir}" if report.run_dir else ""),
            markup=False,
            soft_wrap=True,
        )
    if report.errors:
        raise typer.Exit(1)


def _counted(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:g}" for name, figure in sorted(figures.items()))
