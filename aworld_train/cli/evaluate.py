"""`aworld-train eval`: plans an evaluation, has it made, and prints what came of it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import (
    RUNS,
    EngineOption,
    EvaluationArgument,
    JsonOption,
    OverridesArgument,
    QuietOption,
    RunsOption,
    complete_recipe,
    with_engine,
)
from aworld_train.errors import EvaluationFailure, UsageError, suggestion


def _complete_recipe_or_command(incomplete: str) -> list[str]:
    commands = [name for name in ("compare", "report") if name.startswith(incomplete)]
    return commands + complete_recipe(incomplete)


def evaluate(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe file, or the name of a ready recipe.",
            autocompletion=_complete_recipe_or_command,
        ),
    ],
    overrides: OverridesArgument = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Model directory, checkpoint, or folder of a run; default: the recipe's model."),
    ] = None,
    model_url: Annotated[
        str | None,
        typer.Option(help="An OpenAI-compatible endpoint in place of a model, as http://host:8000/v1."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model's name at --model-url; default: the one that it has.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable with the endpoint's key.")
    ] = "OPENAI_API_KEY",
    dataset: Annotated[
        list[Path] | None,
        typer.Option(help="Tasks, once or several times; default: the recipe's dataset.val."),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--k", min=1, help="Attempts at each task. Short for eval.attempts.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Most attempts at a time. Short for eval.concurrency.")
    ] = None,
    max_errors: Annotated[
        int | None,
        typer.Option(
            min=0, help="Most attempts that may fail by no fault of the agent. Short for eval.max_errors."
        ),
    ] = None,
    engine: EngineOption = None,
    agent: Annotated[
        str,
        typer.Option(
            help="recipe; or oracle (knows the answers) or null (says nothing) to check a benchmark."
        ),
    ] = "recipe",
    limit: Annotated[int, typer.Option(help="Most tasks; -1 for all.")] = -1,
    name: Annotated[
        str | None, typer.Option(help="The folder is eval-NAME; default: the recipe's name.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where the folder is made.")] = RUNS,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the evaluation of that name, or the recipe's newest."),
    ] = False,
    retry_errors: Annotated[
        bool,
        typer.Option("--retry-errors", help="With --resume: make attempts that could not be scored again."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure an agent on a dataset with its tools: k attempts a task, every one kept, with honest intervals.

    What fails by no fault of the agent is counted apart and is never a wrong answer; more than --max-errors of these
    end the command with 1. `aworld-train eval compare A B` compares evaluations, `aworld-train eval report NAME` writes
    their reports again.

    Examples:
        aworld-train eval recipes/quickstart.yaml --checkpoint runs/quickstart/checkpoints/global_step_8
        aworld-train eval recipe.yaml --model-url http://gpu-node:8000/v1 --k 4 eval.temperature=1.0 eval.top_p=0.6
        aworld-train eval recipe.yaml --resume --retry-errors
    """
    from rich.console import Console

    from aworld_train.evaluation.evaluate import evaluate as measure
    from aworld_train.evaluation.folder import PREFIX, folder_to_resume, new_folder, open_folder
    from aworld_train.evaluation.plan import plan_evaluation
    from aworld_train.training.progress import progress_for

    shorts = {"eval.attempts": attempts, "eval.concurrency": concurrency, "eval.max_errors": max_errors}
    plan = plan_evaluation(
        recipe,
        [
            *with_engine(overrides, engine),
            *(f"{key}={value}" for key, value in shorts.items() if value is not None),
        ],
        checkpoint=checkpoint,
        endpoint=read_endpoint(model_url, model, key_variable, checkpoint),
        dataset=dataset or (),
        limit=limit,
        agent=_agent(agent),
    )
    own_name = name or plan.loaded.recipe.name
    find = folder_to_resume if resume else new_folder
    path = find(runs, own_name, is_chosen=name is not None)
    if not resume and path.name != f"{PREFIX}{own_name}":
        console.note(
            f"{PREFIX}{own_name} is there already, so this evaluation is {path.name}; --name gives another."
        )
    folder = open_folder(path, plan, resume=resume)
    try:
        evaluation, figures, contamination = measure(
            plan,
            folder,
            retry_errors=retry_errors,
            progress=progress_for(Console(stderr=True), quiet=quiet or as_json),
        )
        from aworld_train.evaluation.summary_text import summary_lines
        from aworld_train.view.eval_report import update_reports

        page = update_reports(evaluation, figures)
    finally:
        folder.close()
    if as_json:
        found = asdict(contamination) if contamination else None
        console.print_json(figures.to_json() | {"contamination": found, "run_dir": str(folder.path)})
    else:
        for line in summary_lines(figures, contamination):
            console.print_line(line)
        console.print_line(f"report: {page}")
    if figures.errors > plan.section.max_errors:
        raise EvaluationFailure(
            f"{figures.errors} of {figures.attempts} attempts could not be scored, and --max-errors is "
            f"{plan.section.max_errors}. `aworld-train runs episodes {evaluation.name} --where 'reward=null'` lists "
            "them with their causes; --resume --retry-errors makes them again."
        )


def report(name: EvaluationArgument, runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """Write the reports of an evaluation into its folder, finished or not; an evaluation that ends does so itself.

    `report.html` needs no server: figures, all tasks, and the conversations as far as 24 MB hold them, with texts over
    10,000 characters shortened. `report.md` is a summary, `results.parquet` has a row an attempt, and `inspect.eval` is
    for `inspect view`. They hold what the model and the tools wrote; give them to those who may read that.

    Examples:
        aworld-train eval report eval-quickstart
        aworld-train eval report runs/eval-quickstart --json
    """
    from aworld_train.evaluation.metrics import figures_of
    from aworld_train.evaluation.results import open_evaluation
    from aworld_train.view.eval_report import write_reports

    evaluation = open_evaluation(name, runs)
    figures = figures_of(evaluation)
    written = write_reports(evaluation, figures)
    if as_json:
        console.print_json({**asdict(written), "figures": figures.to_json()})
        return
    left_out = written.attempts - written.readable
    console.note(
        f"The report is {written.html}, {written.html.stat().st_size / 1e6:.1f} MB, with {written.attempts} attempts"
        + (f"; the conversations of {left_out} are not in it." if left_out else ".")
    )
    others = [written.markdown, written.table, *([written.inspect_log] if written.inspect_log else [])]
    console.note(f"Beside it are {', '.join(file.name for file in others)}.")


def read_endpoint(url: str | None, model: str | None, key_variable: str, checkpoint: Path | None) -> Any:
    import asyncio

    from aworld_train.rollout.chat_client import EndpointAddress
    from aworld_train.rollout.chat_endpoint import only_model

    if url is None:
        if model is not None:
            raise UsageError("--model is the name of a model at --model-url, which is not given.")
        return None
    if checkpoint is not None:
        raise UsageError("--checkpoint and --model-url name two models; give one of them.")
    return EndpointAddress(url, model or asyncio.run(only_model(url, key_variable)), key_variable)


def _agent(name: str) -> Any:
    from aworld_train.evaluation.plan import AgentKind

    try:
        return AgentKind(name)
    except ValueError:
        hint = suggestion(name, [kind.value for kind in AgentKind])
        raise UsageError(f"--agent is recipe, oracle or null, not {name!r}.{hint}") from None
