"""``aworld-train dataset``: build a dataset from a source, check a file, look at its rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aworld_train.cli import console

if TYPE_CHECKING:
    from aworld_train.dataset import BuildReport

app = typer.Typer(no_args_is_help=True, help="Build and check datasets of tasks.")

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@app.command("build")
def build_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Where tasks come from: gsm8k or arithmetic.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="Dataset directory; an earlier dataset is replaced."),
    ],
    file: Annotated[
        list[Path] | None, typer.Option("--file", metavar="F", help="Input file of gsm8k; repeatable.")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            metavar="NAME=FRACTION",
            help="Part of the tasks for one split; repeatable, or several parted by commas. "
            r"\[default: train=0.9,val=0.1]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed; the same seed and input give the same bytes.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tasks over all splits (arithmetic: 4000 if not given)."),
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(
            metavar="annotations|questions",
            help="gsm8k: one task per calculator annotation, or one per problem.",
        ),
    ] = "annotations",
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            "--exclude",
            metavar="PATH",
            help="Dataset directory or parquet file whose tasks are left out; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset directory: one parquet file per split, dropped.jsonl and dataset.json.

    Nothing is left out silently: what does not become a task is listed in dropped.jsonl with its reason.

    Examples:

      aworld-train dataset build arithmetic --out data/arithmetic --limit 2000

      aworld-train dataset build gsm8k --file test.jsonl --out data/test --split test=1

      aworld-train dataset build gsm8k --file train.jsonl --out data/gsm8k --exclude data/test
    """
    from aworld_train.dataset import build
    from aworld_train.dataset.splits import parse_splits

    report = build(
        source,
        out,
        files=file or (),
        splits=parse_splits(split or ()),
        seed=seed,
        limit=limit,
        tasks=tasks,
        exclude=exclude or (),
    )
    if as_json:
        console.print_json(report.to_json())
    else:
        _print_report(report)


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Parquet file of tasks.")],
    as_json: JsonOption = False,
) -> None:
    """See that training can use a parquet file; exits with 1 and says why where it cannot.

    Example:

      aworld-train dataset check data/gsm8k/train.parquet
    """
    from aworld_train.dataset import check_file

    summary = check_file(file)
    if as_json:
        console.print_json(summary.to_json())
        return
    table = Table("", "rows", title=escape(str(summary.path)))
    for title, counts in (
        ("data_source", summary.data_sources),
        ("agent_name", summary.agents),
        ("split", summary.splits),
    ):
        for name, count in counts.items():
            table.add_row(escape(f"{title} {name}"), str(count))
    table.add_row("all", str(summary.rows), style="bold")
    console.out.print(table)


@app.command("show")
def show_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Parquet file of tasks.")],
    number: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many rows.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show the first rows of a parquet file.

    Example:

      aworld-train dataset show data/gsm8k/val.parquet -n 3
    """
    from aworld_train.dataset.check import first_rows

    rows = first_rows(file, number)
    if as_json:
        console.print_json({"file": str(file), "rows": rows})
        return
    table = Table("index", "data_source", "prompt", "answer", title=escape(str(file)))
    for row in rows:
        # A file that fails the check is shown too, so what should be there may be missing.
        prompt = "\n".join(f"{message['role']}: {message['content']}" for message in row["prompt"] or ())
        index = (row["extra_info"] or {}).get("index")
        answer = (row["reward_model"] or {}).get("ground_truth")
        cells = (index, row["data_source"], prompt, answer)
        table.add_row(*(escape(str(cell)) for cell in cells))
    console.out.print(table)


def _print_report(report: "BuildReport") -> None:
    written = Table("split", "rows", "file", title=f"{report.source} {report.tasks}, seed {report.seed}")
    for split, rows in report.rows.items():
        written.add_row(split, str(rows), escape(str(report.out / f"{split}.parquet")))
    console.out.print(written)

    account = Table("of what was seen", "count")
    for name, count in (
        ("written", sum(report.rows.values())),
        ("merged: repeats another task", report.merged),
        ("excluded: in a dataset given with --exclude", report.excluded),
        ("left over: beyond --limit or --split", report.left_over),
        *((f"dropped: {reason}", count) for reason, count in report.dropped.items()),
    ):
        account.add_row(name, str(count))
    account.add_section()
    account.add_row("seen", str(report.seen), style="bold")
    console.out.print(account)
    if report.dropped:
        console.note(f"What was dropped is listed in {report.out / 'dropped.jsonl'}")
