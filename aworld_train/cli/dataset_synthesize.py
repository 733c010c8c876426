"""``aworld-train dataset synthesize``: has tasks made with an environment's tools, and prints which were kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import RUNS, JsonOption, OverridesArgument, QuietOption, RecipeArgument

if TYPE_CHECKING:
    from aworld_train.evaluation.synthesis.synthesize import SynthesisReport


def synthesize_command(
    recipe: RecipeArgument,
    seeds: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="A folder with documents that the tools can read, or a text file with a topic, an address or a short "
            "text on each line.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the dataset.")],
    model_url: Annotated[
        str, typer.Option(help="The endpoint of the model that makes tasks, as http://host:8000/v1.")
    ],
    overrides: OverridesArgument = None,
    model: Annotated[
        str | None, typer.Option(help="The model's name there; default: the one that it has.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable with the endpoint's key.")
    ] = "OPENAI_API_KEY",
    solver: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A model that solves the tasks; default: the endpoint's."),
    ] = None,
    per_seed: Annotated[int, typer.Option(min=1, help="Tasks proposed about each seed.")] = 1,
    rounds: Annotated[int, typer.Option(min=0, help="How often each task is made harder.")] = 1,
    attempts: Annotated[
        int, typer.Option("--k", min=1, help="Attempts at each task, with and without tools.")
    ] = 4,
    min_solved: Annotated[float, typer.Option(help="Least share of attempts that are right.")] = 0.25,
    max_solved: Annotated[float, typer.Option(help="Largest share of attempts that are right.")] = 0.75,
    max_without_tools: Annotated[
        float, typer.Option(help="Largest share of attempts without tools that are right.")
    ] = 0.25,
    scorer: Annotated[str, typer.Option(help="Scorer of every task.")] = "gaia",
    system_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="System prompt of every task, empty for none; default: GAIA's."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Dataset whose questions and near-duplicates are left out; repeatable."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Its folders are synth-NAME-STAGE; default: the recipe's name.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where these folders are made.")] = RUNS,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue where it was cut off; what was answered is not asked again."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make tasks with a recipe's tools: a model explores seeds, proposes tasks and makes them harder.

    What a change adds is verified alone. Every task is then solved --k times with the recipe's agent and tools, and
    without tools; tasks are kept that the solver answers alike, that need the tools, and that are neither too easy nor
    too hard. Each stage is an evaluation below --runs: `synth-NAME-solve` has the solver's episodes, for fine-tuning.

    Examples:
      aworld-train dataset synthesize recipe.yaml --seeds documents --out data/made --model-url http://host:8000/v1
      aworld-train dataset synthesize recipe.yaml --seeds topics.txt --out data/made --model-url http://host/v1 --resume
    """
    from rich.console import Console

    from aworld_train import recipe as recipes
    from aworld_train.cli.evaluate import read_endpoint
    from aworld_train.dataset.sources.options import read_system_prompt
    from aworld_train.evaluation.plan import WITHOUT_TRAINING
    from aworld_train.evaluation.synthesis.synthesize import PREFIX, SynthesisPlan, synthesize
    from aworld_train.evaluation.synthesis.tasks import read_seeds
    from aworld_train.evaluation.synthesis.verdicts import Bounds
    from aworld_train.training.progress import progress_for

    read_seeds(seeds, "")  # what is wrong with them is said before the endpoint is asked for its model
    own_name = name or recipes.read(recipe, [*(overrides or ()), *WITHOUT_TRAINING]).recipe.name
    plan = SynthesisPlan(
        recipe=recipe,
        overrides=overrides or (),
        seeds=seeds,
        out=out,
        endpoint=read_endpoint(model_url, model, key_variable, None),
        folder=runs / f"{PREFIX}{own_name}",
        per_seed=per_seed,
        rounds=rounds,
        attempts=attempts,
        bounds=Bounds(min_solved, max_solved, max_without_tools),
        scorer=scorer,
        system=None if system_prompt is None else read_system_prompt(system_prompt, may_be_empty=True),
        against=against or (),
        solver=solver,
    )
    report = synthesize(
        plan, resume=resume, progress=progress_for(Console(stderr=True), quiet=quiet or as_json)
    )
    if as_json:
        console.print_json(report.to_json())
    elif not quiet:
        _print_report(report, out)


def _print_report(report: "SynthesisReport", out: Path) -> None:
    counts = [("kept", report.kept), *report.dropped.items(), ("proposed", report.proposals)]
    console.print_table(("task", "count"), [(str(name), str(count)) for name, count in counts])
    console.note(
        f"{report.changes['verified']} of {report.changes['proposed']} changes that make tasks harder were verified."
    )
    rows = ", ".join(f"{split} {count}" for split, count in report.dataset.rows.items())
    console.note(f"The dataset is {out} ({rows}); the solver's episodes are in {report.solver_episodes}.")
