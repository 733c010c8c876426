"""``aworld-train reward``: score predictions offline, and see how one answer came by its score."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.reward_explain import explain
from aworld_train.cli.reward_judge import judge_eval
from aworld_train.cli.reward_options import (
    DatasetOption,
    OverridesArgument,
    RecipeOption,
    settings_from,
    writable,
)
from aworld_train.cli.reward_suspects import suspects
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.evaluation.ground_truths import GroundTruth
    from aworld_train.evaluation.prediction_files import Line
    from aworld_train.reward.scored import ScoreResult
    from aworld_train.reward.settings import RewardSettings

_SHOWN = 30  # lines of a file; `--json` has them all
_CHARS = 60  # of an answer in a table

app = typer.Typer(no_args_is_help=True, help="Score answers offline, and see how a score came about.")


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

    from aworld_train.evaluation.ground_truths import read_ground_truths

    settings = settings_from(recipe, overrides)
    truths = read_ground_truths(dataset) if dataset else None
    tally = _Tally()
    asyncio.run(_score(file, settings, truths, tally, quiet=quiet, as_json=as_json))
    if not tally.lines:
        raise UsageError(f"{file} has no lines.")
    if not as_json:
        tally.show()
    if tally.failures:
        console.note(f"{tally.failures} of {tally.lines} lines have no score.")
        raise typer.Exit(1)


app.command("explain")(explain)
app.command("judge-eval")(judge_eval)
app.command("suspects")(suspects)


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
                table.add_row(escape(str(line.id)), score, outcome, escape(writable(extracted[:_CHARS])))
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
    truths: "dict[str, GroundTruth] | None",
    tally: _Tally,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    from rich.progress import Progress

    from aworld_train.evaluation.prediction_files import score_file

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


def _to_json(name: str | int | None, scored: "ScoreResult") -> dict[str, Any]:
    return {
        "id": name,
        "score": scored.score,
        "extracted": scored.extracted,
        "outcome": scored.outcome.value,
        "parts": dict(scored.parts),
    }


def _mean(scores: list[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
