"""``aworld-train runs export``: episodes of a run in the formats of other programs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from aworld_train import __version__
from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsOption
from aworld_train.cli.console import err, note, print_json
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
        model = recorded.manifest.get("model")
        described = ExportedRun(
            recorded.name,
            store.place.run,
            str(model.get("name") or "") if isinstance(model, dict) else "",
            store.blob,
            __version__,
            recorded.recipe,
        )
        counts = export(
            store, described, form, target, condition=condition, force=force, progress=_progress()
        )
    if as_json:
        print_json({"file": str(target), "format": str(form), **counts.to_json()})
        return
    note(f"{target} has {counts.entries:,} {_ENTRIES[form]} of {counts.episodes:,} episodes.")
    if counts.without_content:
        note(f"{counts.without_content:,} episodes are left out, because nothing of their texts is kept.")


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
