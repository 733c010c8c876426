"""``aworld-train reward``: score predictions offline, and see how one answer came by its score."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.reward_judge import judge_eval
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.reward.files import Line, Truth
    from aworld_train.reward.scored import Scored
    from aworld_train.reward.settings import RewardSettings

_SHOWN = 30  # lines of a file; `--json` has them all
_CHARS = 60  # of an answer in a table

app = typer.Typer(no_args_is_help=True, help="Score answers offline, and see how a score came about.")

RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe", "-r", metavar="RECIPE", help="Score as this recipe's runs do; a file or a name."
    ),
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values of the recipe to change.")
]
DatasetOption = Annotated[
    Path | None,
    typer.Option("--dataset", metavar="FILE", help="Tasks by id: parquet, or JSON lines with id and answer."),
]


@app.command("score")
def score_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="A prediction a line.")],
    overrides: OverridesArgument = None,
    dataset: DatasetOption = None,
    recipe: RecipeOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Score each line of a file.

    A line has id and prediction: the final text of the assistant, or a list
    of messages with roles. The right answer, and how it is marked and compared,
    is in its answer, scorer and answer_schema, or in the dataset's row of its id.

    With --json each line that can be read gives
    {"id", "score", "extracted", "outcome", "parts"}; the score is null where the
    scorer abstained, failed or took too long, and stderr says why. Lines that
    cannot be read are named on stderr.

    Exits with 0 if every line was scored or its scorer abstained, and with 1
    if a line is bad, or a scorer failed or took too long.

    Examples:

        aworld-train reward score predictions.jsonl --dataset data/gsm8k/test.parquet

        aworld-train reward score predictions.jsonl --recipe my-recipe.yaml reward.scorer=math --json
    """
    import asyncio

    from aworld_train.reward.files import read_truths

    settings = _settings(recipe, overrides)
    truths = read_truths(dataset) if dataset else None
    tally = _Tally()
    asyncio.run(_score(file, settings, truths, tally, quiet=quiet, as_json=as_json))
    if not tally.lines:
        raise UsageError(f"{file} has no lines.")
    if not as_json:
        tally.show()
    if tally.failures:
        console.note(f"{tally.failures} of {tally.lines} lines have no score.")
        raise typer.Exit(1)


@app.command("explain")
def explain_command(
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
    from dataclasses import asdict

    from aworld_train.reward.scoring import score_now
    from aworld_train.reward.spoken import assistant_text

    settings = _settings(recipe, overrides)
    truth = _truth(answer, dataset, task)
    said = _said(prediction)
    schema = answer_schema or truth.answer_schema or settings.answer_schema
    scored = score_now(
        said,
        ground_truth=truth.answer,
        scorer=scorer or truth.scorer,
        answer_schema=schema,
        query=query or truth.query,
        info=truth.info,
        settings=settings,
    )
    if as_json:
        console.print_json({**asdict(scored), "answer_schema": schema, "ground_truth": truth.answer})
        return
    text = assistant_text(said)
    found = "nothing" if scored.extracted is None else repr(scored.extracted)
    lines = [
        f"said        {len(text)} characters by the assistant",
        f"schema      {schema} finds {found}",
        f"truth       {truth.answer!r}",
        f"scorer      {scored.scorer}",
        *(f"  - {step}" for step in scored.steps),
        *(f"part        {name} {value:g}" for name, value in scored.parts.items()),
        f"score       {'none' if scored.score is None else f'{scored.score:g}'} ({scored.outcome})",
        *([f"because     {scored.cause}"] if scored.cause else []),
    ]
    console.out.print(_writable("\n".join(lines)), markup=False, soft_wrap=True)


app.command("judge-eval")(judge_eval)


class _Tally:
    """What a file's lines came to."""

    def __init__(self) -> None:
        self.lines = 0
        self.failures = 0
        self.shown: list[Line] = []
        self.scores: defaultdict[str, list[float]] = defaultdict(list)
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(self, line: "Line") -> None:
        self.lines += 1
        scored = line.scored
        if scored is None or scored.outcome in ("error", "timeout"):
            self.failures += 1
        if scored is not None:
            self.outcomes[scored.scorer][scored.outcome] += 1
            if scored.score is not None:
                self.scores[scored.scorer].append(scored.score)
        if len(self.shown) < _SHOWN:
            self.shown.append(line)

    def show(self) -> None:
        from rich.markup import escape
        from rich.table import Table

        table = Table("id", "score", "outcome", "extracted")
        for line in self.shown:
            if line.scored is not None:
                extracted = " ".join((line.scored.extracted or "").split())
                score, outcome = _figure(line.scored.score), line.scored.outcome.value
                table.add_row(escape(str(line.id)), score, outcome, escape(_writable(extracted[:_CHARS])))
        console.out.print(table)
        if self.lines > len(self.shown):
            console.out.print(f"and {self.lines - len(self.shown)} more lines; --json prints all")
        summary = Table("scorer", "mean", "n", "outcomes")
        for scorer, outcomes in self.outcomes.items():
            counts = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
            scores = self.scores[scorer]
            summary.add_row(escape(scorer), _figure(_mean(scores)), str(len(scores)), counts)
        if len(self.outcomes) > 1:
            scores = [value for values in self.scores.values() for value in values]
            summary.add_row("all", _figure(_mean(scores)), str(len(scores)), "", style="bold")
        console.out.print(summary)


async def _score(
    file: Path,
    settings: "RewardSettings",
    truths: "dict[str, Truth] | None",
    tally: _Tally,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    from rich.progress import Progress

    from aworld_train.reward.files import score_file

    size = file.stat().st_size if file.is_file() else None  # noqa: ASYNC240  (nothing else is under way yet)
    hidden = quiet or not console.err.is_terminal
    with Progress(console=console.err, transient=True, disable=hidden) as progress:
        bar = progress.add_task("scoring", total=size)
        async for line in score_file(file, settings, truths):
            tally.take(line)
            if line.scored is None:
                console.note(f"{line.place}: {line.fault}")
            else:
                if line.scored.cause is not None:
                    console.note(f"{line.place}: {line.scored.cause}")
                if as_json:
                    console.print_json(_to_json(line.id, line.scored))
            progress.update(bar, completed=line.end)


def _to_json(name: str | int | None, scored: "Scored") -> dict[str, Any]:
    return {
        "id": name,
        "score": scored.score,
        "extracted": scored.extracted,
        "outcome": scored.outcome.value,
        "parts": dict(scored.parts),
    }


def _settings(recipe: str | None, overrides: list[str] | None) -> "RewardSettings":
    from aworld_train.reward.settings import RewardSettings

    if recipe is None:
        if overrides:
            raise UsageError(f"{overrides[0]} changes a recipe; name the recipe with --recipe.")
        return RewardSettings()
    from aworld_train import recipe as recipes
    from aworld_train.reward.from_recipe import reward_settings

    return reward_settings(recipes.load(recipe, overrides or []))


def _truth(answer: str | None, dataset: Path | None, task: str | None) -> "Truth":
    from dataclasses import replace

    from aworld_train.reward.files import Truth, find_truth, read_truths

    if (dataset is None) != (task is None):
        raise UsageError("--dataset and --id go together: the file, and the task in it.")
    if dataset is not None and task is not None:
        truth = find_truth(read_truths(dataset), task)
        return truth if answer is None else replace(truth, answer=answer)
    if answer is None:
        raise UsageError("Say what the right answer is: with --answer, or with --dataset and --id.")
    return Truth(answer)


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


def _writable(text: str) -> str:
    """Without halves of surrogate pairs, which JSON can hold and no terminal can show."""
    return text.encode("utf-8", "replace").decode()


def _mean(scores: list[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
