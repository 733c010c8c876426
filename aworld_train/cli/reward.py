"""``aworld-train reward``: score predictions offline, and explain the score of one answer."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import OverridesArgument, QuietOption
from aworld_train.cli.reward_explain import explain
from aworld_train.cli.reward_judge import judge_eval
from aworld_train.cli.reward_options import DatasetOption, RecipeOption, settings_from
from aworld_train.cli.reward_suspects import suspects
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.episode.score import ScoreResult
    from aworld_train.evaluation.ground_truths import GroundTruth
    from aworld_train.evaluation.prediction_files import ScoredLine
    from aworld_train.reward.settings import RewardSettings

_MAX_ROWS = 30  # lines of a file in the table; `--json` prints all
_MAX_CHARS = 60  # of an answer in the table

app = typer.Typer(no_args_is_help=True, help="Score answers offline, and explain a score step by step.")


@app.command("score")
def score_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One prediction per line.")],
    overrides: OverridesArgument = None,
    dataset: DatasetOption = None,
    recipe: RecipeOption = None,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Score each line of a file.

    A line has id and prediction: the final text of the assistant, or a list
    of messages with roles. The right answer, its scorer and its answer schema are
    in answer, scorer and answer_schema, or in the dataset's row with that id.

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
    ground_truths = read_ground_truths(dataset) if dataset else None
    tally = _Tally()
    asyncio.run(_score(file, settings, ground_truths, tally, quiet=quiet, as_json=as_json))
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
    def __init__(self) -> None:
        self.lines = 0
        self.failures = 0
        self.rows: list[ScoredLine] = []
        self.scores: defaultdict[str, list[float]] = defaultdict(list)
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, line: "ScoredLine") -> None:
        self.lines += 1
        result = line.result
        if result is None or result.outcome in ("error", "timeout"):
            self.failures += 1
        if result is not None:
            self.outcomes[result.scorer][result.outcome] += 1
            if result.score is not None:
                self.scores[result.scorer].append(result.score)
        if len(self.rows) < _MAX_ROWS:
            self.rows.append(line)

    def show(self) -> None:
        rows = []
        for line in self.rows:
            if line.result is not None:
                extracted = " ".join((line.result.extracted or "").split())[:_MAX_CHARS]
                score, outcome = _format_number(line.result.score), line.result.outcome.value
                rows.append((str(line.id), score, outcome, extracted))
        console.print_table(("id", "score", "outcome", "extracted"), rows)
        if self.lines > len(self.rows):
            console.out.print(f"and {self.lines - len(self.rows)} more lines; --json prints all")
        totals = []
        for scorer, outcomes in self.outcomes.items():
            counts = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
            scores = self.scores[scorer]
            totals.append((scorer, _format_number(_mean(scores)), str(len(scores)), counts))
        if len(self.outcomes) > 1:
            scores = [value for values in self.scores.values() for value in values]
            totals.append(("all", _format_number(_mean(scores)), str(len(scores)), ""))
        console.out.print()
        console.print_table(("scorer", "mean", "n", "outcomes"), totals)


async def _score(
    file: Path,
    settings: "RewardSettings",
    ground_truths: "dict[str, GroundTruth] | None",
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
        async for line in score_file(file, settings, ground_truths):
            tally.add(line)
            if line.result is None:
                console.note(f"{line.location}: {line.fault}")
            else:
                if line.result.cause is not None:
                    console.note(f"{line.location}: {line.result.cause}")
                if as_json:
                    console.print_json(_to_json(line.id, line.result))
            progress.update(bar, completed=line.end)


def _to_json(name: str | int | None, result: "ScoreResult") -> dict[str, Any]:
    return {
        "id": name,
        "score": result.score,
        "extracted": result.extracted,
        "outcome": result.outcome.value,
        "parts": dict(result.parts),
    }


def _mean(scores: list[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None


def _format_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
