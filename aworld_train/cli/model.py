"""``aworld-train model``: a model that needs no download and learns on any machine."""

from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption

app = typer.Typer(no_args_is_help=True, help="A model that needs no download.")


@app.callback()
def _model() -> None:
    """A model that needs no download."""


@app.command("tiny")
def tiny_command(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Model directory; an earlier tiny model is replaced."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy the tiny model of the package, which half-knows how to use a calculator, to see training raise it.

    It was taught by imitation to answer "What is 48/2?" by calling the tool, and to
    guess more than half of the time: what is left to learn by reinforcement is
    when to use the tool. It can do nothing else. scripts/tiny_model.py made it.

    Example:
      aworld-train model tiny --out models/tiny
    """
    from aworld_train.model import tiny

    report = tiny.copy(out)
    if report.reused:
        console.note(f"{out} is there already; nothing to do.")
    if as_json:
        console.print_json(report.to_json())
        return
    console.print_line(f"Tiny model at {report.out}")
    rows = {
        f"accuracy, greedy, {report.val_tasks} validation tasks": f"{report.accuracy:.3f}",
        "episodes that call the tool, greedy": f"{report.tool_use:.3f}",
        "accuracy at temperature 1": f"{report.sampled_accuracy:.3f}",
        "groups of 8 with right and wrong answers": f"{report.mixed_groups:.3f}",
        "weights": f"{report.parameters:,}",
        "vocabulary": str(report.vocab_size),
        "tokens: prompt, whole episode": f"{report.prompt_tokens}, {report.episode_tokens}",
    }
    console.print_facts(rows)
