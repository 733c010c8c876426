"""``aworld-train dataset build``: options or a recipe become a dataset directory, and a table of counts is printed."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption
from aworld_train.cli.termination import raised_from_signals
from aworld_train.dataset.matches import FigureVariants
from aworld_train.dataset.sources.options import (
    UserOption,
    default_value,
    make_options,
    nondefault_flags,
    user_options,
)
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.dataset import BuildReport
    from aworld_train.dataset.plan import BuildPlan
    from aworld_train.dataset.progress import BuildProgress
    from aworld_train.dataset.sources import SourceOptions

LIVE_AFTER_SECONDS = 2.0
LINE_SECONDS = 60.0
_REFRESH_SECONDS = 0.25
MAX_COLUMNS = 20
"""How many columns are named of those that were not used; ``dataset.json`` names all."""


def _with_source_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a parameter for each option of a source, in place of its ``**source_options``."""
    signature = inspect.signature(command)
    own = [
        parameter for parameter in signature.parameters.values() if parameter.kind != Parameter.VAR_KEYWORD
    ]
    options = [_parameter(option, default_value(option_field)) for option_field, option in user_options()]
    # typer reads a command's parameters from its signature.
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return command


def _parameter(option: UserOption, default: object) -> Parameter:
    many = isinstance(default, tuple | dict)
    value = typer.Option(
        None,
        *filter(None, (option.flag, option.short)),
        metavar=option.metavar,
        help=option.help if many or default is None else rf"{option.help} \[default: {default}]",
        rich_help_panel=option.panel,
    )
    annotation = list[str] | None if many else str | None
    return Parameter(option.key, Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


@_with_source_options
def build_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE|RECIPE",
            help="gaia, gsm8k, jsonl, csv, parquet, hf, arithmetic or files; a user-defined one as module:function "
            "or file.py:function; or a recipe, a .yaml file, that names several.",
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
        typer.Option(
            metavar="N", help="Most tasks over all splits (arithmetic: 4000, files: 1000 if not given)."
        ),
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
            metavar="PATH",
            help="Dataset directory or parquet file whose tasks are left out, and questions that nearly equal "
            "theirs, contain one or are a part of one; repeatable.",
        ),
    ] = None,
    figure_variants: Annotated[
        FigureVariants | None,
        typer.Option(
            metavar="keep|drop",
            help="Keep or drop questions that differ from another in their numbers alone. "
            r"\[default: drop for --against, keep for --dedupe]",
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option("--strict/--no-strict", help="Stop at the first piece of input that would be dropped."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and the result with --json.")
    ] = False,
    as_json: JsonOption = False,
    **source_options: Any,
) -> None:
    """Build a dataset directory: one parquet file per split, dropped.jsonl and dataset.json.

    Nothing is left out silently: what does not become a task is listed in dropped.jsonl with its reason.

    Examples:
      aworld-train dataset build arithmetic --out data/arithmetic --limit 2000
      aworld-train dataset build gaia --file GAIA --split train=0.7,test=0.3
      aworld-train dataset build files --level 1 --tag csv --tag pdf --limit 500
      aworld-train dataset build gsm8k --file test.jsonl --out data/test --split test=1
      aworld-train dataset build gsm8k --file train.jsonl --out data/gsm8k --against data/test
      aworld-train dataset build jsonl --file tasks.jsonl --map query=problem --scorer f1 --dedupe
      aworld-train dataset build mix.yaml --out data/mix
    """
    from aworld_train.dataset.builder import carry_out
    from aworld_train.dataset.plan import BuildPlan, PlannedSource
    from aworld_train.dataset.progress import BuildProgress
    from aworld_train.dataset.recipe import default_out, read_recipe
    from aworld_train.dataset.splits import parse_splits

    source_options["map"] = _columns(source_options["map"] or ())
    options = make_options(source_options)
    if source.endswith((".yaml", ".yml")):
        _refuse_options(source, options)
        plan = read_recipe(source)
    else:
        plan = BuildPlan([PlannedSource(source, options)], default_out(source.rpartition(":")[2]))
    overrides: dict[str, Any] = {
        "out": out,
        "splits": parse_splits(split or ()),
        "seed": seed,
        "limit": limit,
        "dedupe": dedupe,
        "against": against or None,
        "figure_variants": figure_variants,
        "strict": strict,
    }
    plan = replace(plan, **{name: value for name, value in overrides.items() if value is not None})
    progress = BuildProgress()
    with raised_from_signals(), nullcontext() if quiet or as_json else shown(progress, console.err):
        report = carry_out(plan, progress)
    if as_json:
        console.print_json(report.to_json())
    elif not quiet:
        _print_report(report, plan)


def _columns(texts: Sequence[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in texts:
        name, equals, column = text.partition("=")
        if not (name and equals and column):
            raise UsageError(f"--map {text!r} is not field=column. For example: --map query=problem")
        if name in columns:
            raise UsageError(f"--map gives the field {name!r} twice.")
        columns[name] = column
    return columns


def _refuse_options(recipe: str, options: "SourceOptions") -> None:
    if flags := nondefault_flags(options):
        raise UsageError(
            f"{recipe} is a recipe and says itself what each source reads; leave out {', '.join(flags)}."
        )


def _print_report(report: "BuildReport", plan: "BuildPlan") -> None:
    title = " + ".join(source.name for source in plan.sources)
    levels = sorted({level for counts in report.levels.values() for level in counts})
    console.print_line(f"{title}, seed {report.seed}")
    console.print_table(
        ("split", "rows", *(f"level {level}" for level in levels), "file"),
        [
            (
                split,
                str(rows),
                *(str(report.levels[split].get(level, 0)) for level in levels),
                str(report.out / f"{split}.parquet"),
            )
            for split, rows in report.rows.items()
        ],
    )
    if missing := sorted(set(report.splits) - set(report.rows)):
        console.note(
            f"There are too few tasks for {' and '.join(missing)}: give more input, or measure on those of train "
            f"(dataset.val={report.out / 'train.parquet'})."
        )

    account = {
        "written": sum(report.rows.values()),
        "merged: repeats another task": report.merged,
        "left out: in a dataset given with --against": report.against,
        "left out: nearly another question": report.near_duplicates,
        "left out: contains a question of --against, or is a part of one": report.contained,
        "left out: another question with other numbers": report.figure_variants_left_out,
        "left over: beyond the limit, the weights or the splits": report.left_over,
        **{f"dropped: {reason}": count for reason, count in report.dropped.items()},
        "seen": report.seen,
    }
    console.out.print()
    console.print_table(
        ("of what was seen", "count"), [(name, str(count)) for name, count in account.items()]
    )
    if report.figure_variants_kept:
        console.note(
            f"{report.figure_variants_kept} questions differ from another in their numbers alone and stay."
        )
    for example in report.figure_variant_examples[:1]:
        console.note(
            f"For example, {example['file']}, line {example['line']}, {example['reason']}: {example['text']}"
        )
    left_out = report.near_duplicates + report.contained + report.figure_variants_left_out
    if report.dropped or left_out:
        console.note(f"What was dropped is listed in {report.out / 'dropped.jsonl'}")
    for source in report.sources:
        for line in _unused_columns(source["unused_columns"]):
            console.note(line)


def _unused_columns(columns_by_file: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each file with columns that no field of a task used; files with the same columns share one."""
    files_by_columns: dict[tuple[str, ...], list[str]] = {}
    for file, columns in columns_by_file.items():
        files_by_columns.setdefault(tuple(columns), []).append(file)
    lines = []
    for columns, files in files_by_columns.items():
        names = f"{files[0]} and {len(files) - 1} more files" if len(files) > 1 else files[0]
        more = f" and {len(columns) - MAX_COLUMNS} more" if len(columns) > MAX_COLUMNS else ""
        listed = (
            column if column and column.isprintable() else repr(column) for column in columns[:MAX_COLUMNS]
        )
        lines.append(f"Not used of {names}: {', '.join(listed)}{more}")
    return lines


@contextmanager
def shown(progress: "BuildProgress", console: Console) -> Iterator[None]:
    over = Event()
    show = _show_live if console.is_terminal and not console.is_dumb_terminal else _show_lines
    thread = Thread(target=show, args=(progress, console, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_live(progress: "BuildProgress", console: Console, over: Event) -> None:
    began = time.monotonic()
    if over.wait(LIVE_AFTER_SECONDS):
        return
    from rich.live import Live
    from rich.text import Text

    from aworld_train.training.progress import live_line

    with Live(console=console, transient=True, auto_refresh=False) as live:
        while not over.wait(_REFRESH_SECONDS):
            text = Text(progress.text(), no_wrap=True, overflow="ellipsis")
            live.update(live_line(text, began), refresh=True)


def _show_lines(progress: "BuildProgress", console: Console, over: Event) -> None:
    while not over.wait(LINE_SECONDS):
        console.print(progress.text(), markup=False, soft_wrap=True)
