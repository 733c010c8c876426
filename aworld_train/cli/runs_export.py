"""``runs export`` writes episodes of a run in the formats of other programs, ``runs report`` a run as one HTML file."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aworld_train import __version__
from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsOption
from aworld_train.cli.console import err, note, print_json
from aworld_train.errors import AworldTrainError
from aworld_train.store.export.formats import ExportFormat

_ENTRIES = {
    ExportFormat.parquet: "model calls",
    ExportFormat.messages: "conversations",
    ExportFormat.atif: "trajectories",
    ExportFormat.inspect: "samples",
}
_NOTE_SECONDS = 10.0


def export_run(
    run: RunArgument,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="parquet: a row for each model call, with tokens. messages: conversations for fine-tuning. atif: "
            "Harbor's trajectories. inspect: a log for `inspect view`.",
        ),
    ],
    target: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    condition: Annotated[
        str, typer.Option("--where", help="Only episodes that meet a condition, such as 'reward=1'.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write episodes of a run into a file that other programs read.

    Episodes of which no texts are kept, or which are still running, are left out. Exits with 1 if nothing is left.

    Examples:
        aworld-train runs export quickstart --format messages --where 'reward=1' --out right.jsonl
        aworld-train runs export quickstart --format parquet --out calls.parquet
        aworld-train runs export quickstart --format inspect --where 'phase=val' --out validation.eval
    """
    from aworld_train.atomic import check_writable
    from aworld_train.store.export.exporting import export
    from aworld_train.store.export.writer import ExportedRun
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.run_store import open_run_store

    recorded = open_run(run, runs)
    check_writable(target.parent, "the export (--out)")
    with open_run_store(recorded, condition) as store:
        described = ExportedRun(
            recorded.name,
            store.location.run,
            str(recorded.model.get("name") or ""),
            store.blob,
            __version__,
            recorded.recipe,
        )
        counts = export(
            store, described, form, target, condition=condition, force=force, progress=_progress()
        )
    if as_json:
        print_json({"file": str(target), "format": str(form), **asdict(counts)})
        return
    note(f"{target} has {counts.entries:,} {_ENTRIES[form]} of {counts.episodes:,} episodes.")
    if counts.without_content:
        note(f"{counts.without_content:,} episodes are left out, because nothing of their texts is kept.")


def report(
    run: RunArgument,
    target: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")],
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=0, max=5000, help="The most episodes that are in it.")
    ] = 200,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write a run as one HTML file that needs no server: its figures and curves, and a sample of its episodes.

    The sample is the same each time: of each outcome as many, spread over the steps. Texts over 10,000 characters are
    shortened. The file holds what the model and the tools wrote; give it to those who may read that.

    Examples:
        aworld-train runs report quickstart --out quickstart.html
        aworld-train runs report runs/quickstart --out report.html --episodes 50
    """
    from aworld_train.store.database import StoreUnreachable
    from aworld_train.training.recorded_run import open_run
    from aworld_train.view.report import write_report

    try:
        written = write_report(open_run(run, runs), target, episodes=episodes)
    except StoreUnreachable as error:
        raise AworldTrainError(
            f"The database with the episodes of {run} does not answer: {error}."
        ) from error
    if as_json:
        print_json(
            {"report": str(target), "bytes": written.size, "episodes": written.episodes, "of": written.total}
        )
    else:
        note(
            f"The report is {target}, {written.size / 1e6:.1f} MB, with {written.episodes} of {written.total} episodes."
        )


def _progress() -> Callable[[int, int], None]:
    began = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (0.2 if err.is_terminal else _NOTE_SECONDS):
            return
        last = now
        text = f"{done:,} of {total:,} episodes, {done / (now - began):,.0f} a second"
        if err.is_terminal:
            err.print(f"{text:<60}", end="\r", markup=False)
        else:
            note(text)

    return report
