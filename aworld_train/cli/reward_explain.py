"""``aworld-train reward explain``: how the score of one answer came about."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption, OverridesArgument
from aworld_train.cli.reward_options import DatasetOption, RecipeOption, settings_from
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.evaluation.ground_truths import GroundTruth

_MAX_CHARS = 1000  # of an answer


def explain(
    overrides: OverridesArgument = None,
    prediction: Annotated[
        str, typer.Option(metavar="TEXT|@FILE", help="The assistant's text, or a file that holds it.")
    ] = "",
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="The right answer.")] = None,
    scorer: Annotated[str | None, typer.Option(metavar="NAME", help="The scorer that compares.")] = None,
    answer_schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="How the answer is extracted.")
    ] = None,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="The task's question.")] = None,
    dataset: DatasetOption = None,
    task: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="With --dataset: the task's id.")
    ] = None,
    recipe: RecipeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show step by step how one answer is extracted and compared.

    Examples:
        aworld-train reward explain --answer 1/2 --prediction '<answer>0.5</answer>' --scorer math
        aworld-train reward explain --dataset data/val.parquet --id 17 --prediction @reply.txt
    """
    from dataclasses import replace

    from msgspec.structs import asdict

    from aworld_train.reward.assistant_text import assistant_text
    from aworld_train.reward.scoring import score_now
    from aworld_train.reward.settings import ANSWER_SCHEMA

    settings = settings_from(recipe, overrides)
    ground_truth = _find_ground_truth(answer, dataset, task)
    messages = _read_prediction(prediction)
    settings = replace(
        settings,
        scorer=scorer or settings.scorer,
        answer_schema=answer_schema or settings.answer_schema or ground_truth.answer_schema or ANSWER_SCHEMA,
    )
    schema = settings.answer_schema
    result = score_now(
        messages,
        ground_truth=ground_truth.answer,
        scorer=ground_truth.scorer,
        query=query or ground_truth.query,
        info=ground_truth.info,
        settings=settings,
    )
    if as_json:
        console.print_json({**asdict(result), "answer_schema": schema, "ground_truth": ground_truth.answer})
        return
    text = assistant_text(messages)
    extracted = "nothing" if result.extracted is None else _short(result.extracted)
    lines = [
        f"said        {len(text)} characters by the assistant",
        f"schema      {schema} finds {extracted}",
        f"truth       {_short(ground_truth.answer)}",
        f"scorer      {result.scorer}",
        *(f"  - {step}" for step in result.steps),
        *(f"part        {name} {value:g}" for name, value in result.parts.items()),
        f"score       {'none' if result.score is None else f'{result.score:g}'} ({result.outcome})",
        *([f"because     {result.cause}"] if result.cause else []),
    ]
    console.print_line("\n".join(lines).encode("utf-8", "replace").decode())


def _short(text: str) -> str:
    return (
        repr(text)
        if len(text) <= _MAX_CHARS
        else f"{text[:_MAX_CHARS]!r} and {len(text) - _MAX_CHARS} more characters"
    )


def _find_ground_truth(answer: str | None, dataset: Path | None, task: str | None) -> "GroundTruth":
    from dataclasses import replace

    from aworld_train.evaluation.ground_truths import GroundTruth, find_ground_truth, read_ground_truths

    if (dataset is None) != (task is None):
        raise UsageError("--dataset and --id go together: the file, and the task in it.")
    if dataset is not None and task is not None:
        ground_truth = find_ground_truth(read_ground_truths(dataset), task)
        return ground_truth if answer is None else replace(ground_truth, answer=answer)
    if answer is None:
        raise UsageError("Give the right answer: with --answer, or with --dataset and --id.")
    return GroundTruth(answer)


def _read_prediction(prediction: str) -> "str | list[dict[str, Any]]":
    """The text, or the content of the file, which may be a JSON list of messages."""
    import json

    if not prediction:
        raise UsageError("Give the assistant's text: with --prediction TEXT or --prediction @FILE.")
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
