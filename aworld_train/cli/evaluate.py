"""`aworld-train eval`: plans an evaluation, has it made, and prints what came of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import complete_recipe
from aworld_train.cli.engine_option import EngineOption, with_engine


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
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values to change.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", help="Model directory or checkpoint folder; default: the recipe's model."
        ),
    ] = None,
    model_url: Annotated[
        str | None,
        typer.Option(
            "--model-url", help="An OpenAI-compatible endpoint in place of a model, as http://host:8000/v1."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model's name at --model-url; default: the one that it has."),
    ] = None,
    key_variable: Annotated[
        str, typer.Option("--key-variable", help="Environment variable with the endpoint's key.")
    ] = "OPENAI_API_KEY",
    dataset: Annotated[
        list[Path] | None,
        typer.Option("--dataset", help="Tasks, once or several times; default: the recipe's dataset.val."),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--k", min=1, help="Attempts at each task. Short for eval.attempts.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="Most attempts at a time. Short for eval.concurrency."),
    ] = None,
    max_errors: Annotated[
        int | None,
        typer.Option(
            "--max-errors",
            min=0,
            help="Most attempts that may fail by no fault of the agent. Short for eval.max_errors.",
        ),
    ] = None,
    engine: EngineOption = None,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            help="recipe; or oracle (knows the answers) or null (says nothing) to check a benchmark.",
        ),
    ] = "recipe",
    limit: Annotated[int, typer.Option("--limit", help="Most tasks; -1 for all.")] = -1,
    name: Annotated[
        str | None, typer.Option("--name", help="The folder is eval-NAME; default: the recipe's name.")
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", help="Where the folder is made.")] = Path("runs"),
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the evaluation of that name, or with the recipe's newest."),
    ] = False,
    retry_errors: Annotated[
        bool,
        typer.Option("--retry-errors", help="With --resume: make attempts that could not be scored again."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure an agent on a dataset with its tools: k attempts a task, every one kept, with honest intervals.

    What fails by no fault of the agent is counted apart and is never a wrong answer; more than --max-errors of these
    end the command with 1. `aworld-train eval compare A B` compares evaluations, `aworld-train eval report NAME` writes
    their reports anew.

    Examples:

        aworld-train eval recipes/quickstart.yaml --checkpoint runs/quickstart/checkpoints/global_step_8

        aworld-train eval recipe.yaml --model-url http://gpu-node:8000/v1 --k 4 eval.temperature=1.0 eval.top_p=0.6

        aworld-train eval recipe.yaml --resume --retry-errors
    """
    from rich.console import Console

    from aworld_train.errors import EvaluationFailure
    from aworld_train.evaluation.evaluate import evaluate as measure
    from aworld_train.evaluation.folder import PREFIX, folder_to_resume, new_folder, open_folder
    from aworld_train.evaluation.plan import plan_evaluation
    from aworld_train.training.progress import progress_for

    shorts = {
        "eval.attempts": attempts,
        "eval.concurrency": concurrency,
        "eval.max_errors": max_errors,
    }
    plan = plan_evaluation(
        recipe,
        [
            *with_engine(overrides, engine),
            *(f"{key}={value}" for key, value in shorts.items() if value is not None),
        ],
        checkpoint=checkpoint,
        endpoint=_endpoint(model_url, model, key_variable, checkpoint),
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
        found = contamination.to_json() if contamination else None
        console.print_json(figures.to_json() | {"contamination": found, "run_dir": str(folder.path)})
    else:
        for line in summary_lines(figures, contamination):
            console.out.print(line, markup=False, soft_wrap=True, highlight=False)
        console.out.print(f"report: {page}", markup=False, soft_wrap=True, highlight=False)
    if figures.errors > plan.section.max_errors:
        raise EvaluationFailure(
            f"{figures.errors} of {figures.attempts} attempts could not be scored, and --max-errors is "
            f"{plan.section.max_errors}. `aworld-train runs episodes {evaluation.name} --where 'reward=null'` lists "
            "them with their causes; --resume --retry-errors makes them again."
        )


def _endpoint(url: str | None, model: str | None, key_variable: str, checkpoint: Path | None) -> Any:
    import asyncio

    from aworld_train.errors import UsageError
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
    from aworld_train.errors import UsageError, nearest
    from aworld_train.evaluation.plan import AgentKind

    try:
        return AgentKind(name)
    except ValueError:
        near = nearest(name, [kind.value for kind in AgentKind])
        hint = f" Did you mean {near}?" if near else ""
        raise UsageError(f"--agent is recipe, oracle or null, not {name!r}.{hint}") from None
