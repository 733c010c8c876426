"""``aworld-train reward judge-eval``: how well a judge agrees with labels."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption, OverridesArgument, QuietOption
from aworld_train.cli.reward_options import RecipeOption, settings_from
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.evaluation.judge_agreement import Agreement
    from aworld_train.reward.settings import RewardSettings

_MAX_IDS = 5  # of answers to look at


def judge_eval(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="Labelled answers: one line each, with id, query, answer, prediction and label (0, 1, false or true).",
        ),
    ],
    overrides: OverridesArgument = None,
    recipe: RecipeOption = None,
    url: Annotated[
        str | None, typer.Option(help="Instead of a recipe: address of a judge, up to /chat/completions.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --url: the judge's name at that endpoint.")] = None,
    key_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --url: environment variable that holds its key.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how well a judge agrees with people.

    Each answer is judged as a run would, by the same models, prompt and limits, and the verdict is compared with the
    label. The prediction is judged as it is: no answer is extracted from it.

    Exits with 1 if there was no verdict at all.

    Examples:
        aworld-train reward judge-eval labelled.jsonl --recipe my-recipe.yaml
        aworld-train reward judge-eval labelled.jsonl --url http://localhost:8000/v1 --model Qwen/Qwen3-8B --json
    """
    import asyncio

    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from aworld_train.evaluation.judge_agreement import measure_agreement, read_labelled

    settings = _settings(recipe, overrides, url, model, key_variable)
    labelled = read_labelled(file)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console.err, transient=True, disable=quiet or as_json) as progress:
        bar = progress.add_task("judging", total=len(labelled))
        agreement = asyncio.run(
            measure_agreement(labelled, settings, lambda done: progress.update(bar, completed=done))
        )
    if as_json:
        console.print_json(asdict(agreement))
    else:
        _show(agreement)
    if agreement.abstained == agreement.n:
        raise typer.Exit(1)


def _settings(
    recipe: str | None,
    overrides: list[str] | None,
    url: str | None,
    model: str | None,
    key_variable: str | None,
) -> "RewardSettings":
    from aworld_train.reward.settings import JudgeModel, JudgeSettings, RewardSettings

    if recipe is not None or overrides:
        if recipe is not None and (url, model, key_variable) != (None, None, None):
            raise UsageError("--recipe names the judge; leave out --url, --model and --key-variable.")
        settings = settings_from(recipe, overrides)
        if not settings.judge.models:
            raise UsageError(f"The recipe {recipe} names no judge; put one into reward.judge.models.")
        return settings
    if url is None or model is None:
        raise UsageError("Name a judge: with --recipe, or with --url and --model.")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url must begin with http:// or https://, it is {url!r}.")
    judge = JudgeModel(model, url, model, key_variable)
    # No caller waits for a single score, so the judge gets the time of two full requests.
    return RewardSettings(timeout=2 * judge.timeout, judge=JudgeSettings(models=(judge,)))


def _show(agreement: "Agreement") -> None:
    console.print_table(
        ("", "judged correct", "judged incorrect", "no verdict"),
        [(f"labelled {label}", *map(str, counts.values())) for label, counts in agreement.confusion.items()],
    )
    if agreement.interval is not None:
        low, high = agreement.interval
        console.out.print(
            f"accuracy {agreement.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}), "
            f"Cohen's kappa {_format_number(agreement.kappa)}, "
            f"precision {_format_number(agreement.precision)}, recall {_format_number(agreement.recall)}",
            soft_wrap=True,
        )
    console.out.print(
        f"{agreement.n} answers, {agreement.abstained} without a verdict; {agreement.calls} requests, "
        f"{agreement.cached} verdicts from the cache; cost {agreement.cost:.6g}",
        soft_wrap=True,
    )
    if agreement.disagreements:
        remaining = len(agreement.disagreements) - _MAX_IDS
        shown = ", ".join(agreement.disagreements[:_MAX_IDS]) + (
            f" and {remaining} more" if remaining > 0 else ""
        )
        console.print_line(f"verdict and label differ: {shown}")
    for name, cause in list(agreement.causes.items())[:_MAX_IDS]:
        console.print_line(f"no verdict on {name}: {cause}")


def _format_number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
