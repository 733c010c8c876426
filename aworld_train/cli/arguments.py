"""Arguments that several commands have; a shell completes the names of runs and of ready recipes."""

from pathlib import Path
from typing import Annotated

import typer


def _complete_run(context: typer.Context, incomplete: str) -> list[str]:
    runs = Path(context.params.get("runs") or RUNS)
    names = sorted(file.parent.name for file in runs.glob("*/recipe.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    from aworld_train.recipe.locate import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


RUNS = Path("runs")
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's name, or its folder.", autocompletion=_complete_run)
]
RunsArgument = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Names of runs, or their folders.", autocompletion=_complete_run),
]
EvaluationArgument = Annotated[
    str,
    typer.Argument(metavar="EVAL", help="An evaluation's name, or its folder.", autocompletion=_complete_run),
]
EvaluationsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="EVAL...", help="Names of evaluations, or their folders.", autocompletion=_complete_run
    ),
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Where run folders are.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe file, or the name of a ready recipe.", autocompletion=complete_recipe
    ),
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted keys with YAML values.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="Short for rollout.engine=NAME: transformers or vllm.")
]


def with_engine(overrides: list[str] | None, engine: str | None) -> list[str]:
    return [*(overrides or ()), *([f"rollout.engine={engine}"] if engine is not None else ())]
