"""``aworld-train reward explain``: how one answer came by its score."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.reward_options import (
    DatasetOption,
    OverridesArgument,
    RecipeOption,
    settings_from,
    writable,
)
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.evaluation.ground_truths import GroundTruth

_CHARS = 1000  # of an answer


def explain(
    overrides: OverridesArgument = None,
    prediction: Annotated[
        str,
        typer.Option("--prediction", metavar="TEXT|@FILE", help="What the assistant said, or a file of it."),
    ] = "",
    answer: Annotated[str | None, typer.Option("--answer", metavar="TEXT", help="The right answer.")] = None,
    scorer: Annotated[str | None, typer.Option("--scorer", metavar="NAME", help="Who compares.")] = None,
    answer_schema: Annotated[
        str | None, typer.Option("--answer-schema", metavar="NAME", help="How the answer is marked.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", metavar="TEXT", help="What was asked.")] = None,
    dataset: DatasetOption = None,
    task: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="With --dataset: which task.")
    ] = None,
    recipe: RecipeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show step by step how one answer is found and compared.

    Examples:

        aworld-train reward explain --answer 1/2 --prediction '<answer>0.5</answer>' --scorer math

        aworld-train reward explain --dataset data/val.parquet --id 17 --prediction @reply.txt
    """
    from dataclasses import asdict, replace

    from aworld_train.reward.assistant_text import assistant_text
    from aworld_train.reward.scoring import score_now
    from aworld_train.reward.settings import ANSWER_SCHEMA

    settings = settings_from(recipe, overrides)
    truth = _truth(answer, dataset, task)
    said = _said(prediction)
    settings = replace(
        settings,
        scorer=scorer or settings.scorer,
        answer_schema=answer_schema or settings.answer_schema or truth.answer_schema or ANSWER_SCHEMA,
    )
    schema = settings.answer_schema
    scored = score_now(
        said,
        ground_truth=truth.answer,
        scorer=truth.scorer,
        query=query or truth.query,
        info=truth.info,
        settings=settings,
    )
    if as_json:
        console.print_json({**asdict(scored), "answer_schema": schema, "ground_truth": truth.answer})
        return
    text = assistant_text(said)
    found = "nothing" if scored.extracted is None else _short(scored.extracted)
    lines = [
        f"said        {len(text)} characters by the assistant",
        f"schema      {schema} finds {found}",
        f"truth       {_short(truth.answer)}",
        f"scorer      {scored.scorer}",
        *(f"  - {step}" for step in scored.steps),
        *(f"part        {name} {value:g}" for name, value in scored.parts.items()),
        f"score       {'none' if scored.score is None else f'{scored.score:g}'} ({scored.outcome})",
        *([f"because     {scored.cause}"] if scored.cause else []),
    ]
    console.out.print(writable("\n".join(lines)), markup=False, soft_wrap=True)


def _short(text: str) -> str:
    """As Python writes it, its end left out where it is long; ``--json`` has all of it."""
    return (
        repr(text) if len(text) <= _CHARS else f"{text[:_CHARS]!r} and {len(text) - _CHARS} more characters"
    )


def _truth(answer: str | None, dataset: Path | None, task: str | None) -> "GroundTruth":
    from dataclasses import replace

    from aworld_train.evaluation.ground_truths import GroundTruth, find_ground_truth, read_ground_truths

    if (dataset is None) != (task is None):
        raise UsageError("--dataset and --id go together: the file, and the task in it.")
    if dataset is not None and task is not None:
        truth = find_ground_truth(read_ground_truths(dataset), task)
        return truth if answer is None else replace(truth, answer=answer)
    if answer is None:
        raise UsageError("Say what the right answer is: with --answer, or with --dataset and --id.")
    return GroundTruth(answer)


def _said(prediction: str) -> "str | list[dict[str, Any]]":
    """The text, or what is in the file; JSON messages in it are taken as such."""
    import json

    if not prediction:
        raise UsageError("Say what the assistant said: with --prediction TEXT or --prediction @FILE.")
    if not prediction.startswith("@"):
        return prediction
    path = Path(prediction[1:])
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prediction: {path} cannot be read: {error}.") from error
    try:
        data = json.loads(text)
    except ValueError:
        return text
    is_messages = isinstance(data, list) and data and all(isinstance(m, dict) and "role" in m for m in data)
    return data if is_messages else text
