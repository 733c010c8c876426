"""``aworld-train dataset build``: options or a recipe become a dataset directory, and an account of what was seen."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from aworld_train.cli import console
from aworld_train.cli.dataset_views import JsonOption
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.dataset import BuildReport
    from aworld_train.dataset.plan import BuildPlan
    from aworld_train.dataset.sources import SourceOptions

_SOURCE = "What is read"
_ROWS = "How it is asked and judged"


def build_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE|RECIPE",
            help="gaia, gsm8k, jsonl, csv, parquet, hf or arithmetic; one's own as module:function or "
            "file.py:function; or a recipe, a .yaml file, that names several.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help=r"Dataset directory; an earlier dataset is replaced. \[default: data/SOURCE]",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            metavar="NAME=FRACTION",
            help="Part of the tasks for one split, of every level; repeatable, or several parted by commas. "
            r"\[default: train=0.9,val=0.1]",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=r"The same seed and input give the same bytes. \[default: 0]")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tasks over all splits (arithmetic: 4000 if not given)."),
    ] = None,
    dedupe: Annotated[
        bool | None,
        typer.Option(
            "--dedupe/--no-dedupe", help="Leave out questions that are nearly another of the dataset."
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="PATH",
            help="Dataset directory or parquet file whose tasks, and questions nearly theirs, are left out; "
            "repeatable.",
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option("--strict/--no-strict", help="Stop at the first piece of input that would be dropped."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="F",
            help="Input file, snapshot directory or name on the hub; repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN",
            help="Column that has a field (id, query, answer, ...), where the names differ; repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Part of the input: gaia, hf (validation).", rich_help_panel=_SOURCE
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Configuration of a dataset on the hub.", rich_help_panel=_SOURCE),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="L", help="Levels to take; repeatable.", rich_help_panel=_SOURCE),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="annotations|questions",
            help=r"gsm8k: a task per calculator annotation, or per problem. \[default: annotations]",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Scorer of every task.", rich_help_panel=_ROWS),
    ] = None,
    answer_schema: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="How every answer is taken out of what is said.", rich_help_panel=_ROWS
        ),
    ] = None,
    system_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="System prompt of every task.", rich_help_panel=_ROWS),
    ] = None,
    attachments_at: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=r"Where the tool environment has the attachments. \[default: /attachments]",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset directory: one parquet file per split, dropped.jsonl and dataset.json.

    Nothing is left out silently: what does not become a task is listed in dropped.jsonl with its reason.

    Examples:

      aworld-train dataset build arithmetic --out data/arithmetic --limit 2000

      aworld-train dataset build gaia --file GAIA --split train=0.7,test=0.3

      aworld-train dataset build gsm8k --file test.jsonl --out data/test --split test=1

      aworld-train dataset build gsm8k --file train.jsonl --out data/gsm8k --against data/test

      aworld-train dataset build jsonl --file tasks.jsonl --map query=problem --scorer f1 --dedupe

      aworld-train dataset build mix.yaml --out data/mix
    """
    from aworld_train.dataset.builder import carry_out
    from aworld_train.dataset.plan import BuildPlan, PlannedSource
    from aworld_train.dataset.recipe import default_out, read_recipe, read_system_prompt
    from aworld_train.dataset.sources import SourceOptions
    from aworld_train.dataset.splits import parse_splits

    options = SourceOptions(
        files=tuple(file or ()),
        columns=_columns(columns or ()),
        part=part,
        config=config,
        levels=tuple(level or ()),
        scorer=scorer,
        answer_schema=answer_schema,
        system=None if system_prompt is None else read_system_prompt(system_prompt),
        attachments_at=SourceOptions.attachments_at if attachments_at is None else attachments_at,
        tasks=SourceOptions.tasks if tasks is None else tasks,
    )
    if source.endswith((".yaml", ".yml")):
        _refuse_options(source, options)
        plan = read_recipe(source)
    else:
        plan = BuildPlan([PlannedSource(source, options)], default_out(source.rpartition(":")[2]))
    given: dict[str, Any] = {
        "out": out,
        "splits": parse_splits(split or ()),
        "seed": seed,
        "limit": limit,
        "dedupe": dedupe,
        "against": against or None,
        "strict": strict,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    report = carry_out(plan)
    if as_json:
        console.print_json(report.to_json())
    else:
        _print_report(report, plan)


def _columns(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Columns by field from ``field=column`` texts."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, column = text.partition("=")
        if not (name and equals and column):
            raise UsageError(f"--map {text!r} is not field=column. For example: --map query=problem")
        if name in found:
            raise UsageError(f"--map gives the field {name!r} twice.")
        found[name] = column
    return found


def _refuse_options(recipe: str, options: "SourceOptions") -> None:
    """See that no option of one source is given with a recipe, which has its own for each."""
    from aworld_train.dataset.sources import given_flags

    if flags := given_flags(options):
        raise UsageError(
            f"{recipe} is a recipe and says itself what each source reads; leave out {', '.join(flags)}."
        )


def _print_report(report: "BuildReport", plan: "BuildPlan") -> None:
    title = " + ".join(source.name for source in plan.sources)
    levels = sorted({level for counts in report.levels.values() for level in counts})
    written = Table("split", "rows", *(f"level {level}" for level in levels), "file")
    written.title = escape(f"{title}, seed {report.seed}")
    for split, rows in report.rows.items():
        by_level = (str(report.levels[split].get(level, 0)) for level in levels)
        written.add_row(split, str(rows), *by_level, escape(str(report.out / f"{split}.parquet")))
    console.out.print(written)

    account = Table("of what was seen", "count")
    for name, count in (
        ("written", sum(report.rows.values())),
        ("merged: repeats another task", report.merged),
        ("left out: in a dataset given with --against", report.against),
        ("left out: nearly another question", report.near_duplicates),
        ("left over: beyond the limit, the weights or the splits", report.left_over),
        *((f"dropped: {reason}", count) for reason, count in report.dropped.items()),
    ):
        account.add_row(escape(name), str(count))
    account.add_section()
    account.add_row("seen", str(report.seen), style="bold")
    console.out.print(account)
    if report.dropped or report.near_duplicates:
        console.note(f"What was dropped is listed in {report.out / 'dropped.jsonl'}")
