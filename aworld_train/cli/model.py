"""``aworld-train model``: make models that are small enough to be made on any machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.status import Status

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption

if TYPE_CHECKING:
    from aworld_train.model.build_progress import BuildStatus
    from aworld_train.model.tiny import TinyReport

app = typer.Typer(no_args_is_help=True, help="Make models that need no download.")


@app.callback()
def _model() -> None:
    """Make models that need no download."""


@app.command("tiny")
def tiny_command(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Model directory; an earlier tiny model is replaced."
        ),
    ],
    seed: Annotated[
        int, typer.Option(help="Seed; 0, without files, is the model that comes with the package.")
    ] = 0,
    train: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Tasks to learn from, beside generated ones.")
    ] = None,
    val: Annotated[
        Path | None,
        typer.Option(metavar="FILE.parquet", help="Tasks to measure on; they are never learned from."),
    ] = None,
    max_cpu_seconds: Annotated[
        float, typer.Option(help="Processor time after which it is given up.")
    ] = 600.0,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make the model, also the one that comes with the package.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a tiny model that half-knows how to use a calculator, to see training raise it.

    It is taught to answer "What is 48/2?" by calling the tool, and then to guess
    more than half of the time: what is left to learn by reinforcement is when to
    use the tool. It is kept only if its measured accuracy is in a window, and it
    can do nothing else. The one of seed 0 comes with the package and is copied; any other takes a minute or two to
    make. The same seed, data and machine give the same model.

    Examples:
      aworld-train model tiny --out models/tiny
      aworld-train model tiny --out models/tiny-1 --seed 1 --train data/train.parquet --val data/val.parquet
    """
    from aworld_train.model import tiny

    with console.err.status("Reading the tasks") as status:
        report = tiny.build(
            out,
            seed=seed,
            train=train,
            val=val,
            progress=lambda progress: _show(status, progress),
            max_cpu_seconds=max_cpu_seconds,
            anew=anew,
        )
    if report.reused:
        console.note(f"{out} was made from the same seed and inputs already; nothing to do.")
    elif report.shipped:
        console.note("It is the one that comes with aworld-train; --anew makes it here.")
    if as_json:
        console.print_json(report.to_json())
    else:
        _print_report(report)


def _show(status: Status, progress: "BuildStatus") -> None:
    accuracy = "not measured yet" if progress.accuracy is None else f"{progress.accuracy:.2f}"
    status.update(
        f"attempt {progress.attempt}, lesson {progress.phase}, step {progress.step}: "
        f"loss {progress.loss:.3f}, accuracy {accuracy}, {progress.seconds:.0f} s"
    )


def _print_report(report: "TinyReport") -> None:
    console.print_line(f"Tiny model at {report.out}")
    rows = {
        f"accuracy, greedy, {report.val_tasks} validation tasks": f"{report.accuracy:.3f}",
        "episodes that call the tool, greedy": f"{report.tool_use:.3f}",
        "accuracy at temperature 1": f"{report.sampled_accuracy:.3f}",
        "groups of 8 with right and wrong answers": f"{report.mixed_groups:.3f}",
        "weights": f"{report.parameters:,}",
        "vocabulary": str(report.vocab_size),
        "tokens: prompt, whole episode": f"{report.prompt_tokens}, {report.episode_tokens}",
        "attempts": str(report.attempts),
        "seconds": f"{report.seconds:.0f}",
    }
    console.print_facts(rows)
