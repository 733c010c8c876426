"""The command ``aworld-train``: gathers the nouns, and is the one place where errors become exit codes.

Only typer and rich are imported here and in the files of the nouns; whatever a command needs beyond that it
imports when it runs, so that ``--help`` costs a fraction of a second.
"""

import json
import sys
import traceback
from typing import Annotated

import typer

from aworld_train import __version__
from aworld_train.cli import dataset, env, model, recipe, reward
from aworld_train.cli.evaluate import evaluate
from aworld_train.cli.rollout import rollout
from aworld_train.cli.train import train
from aworld_train.errors import AworldTrainError
from aworld_train.masking import mask

INTERRUPTED = 130

app = typer.Typer(
    name="aworld-train",
    help="Train tool-using LLM agents from one YAML recipe.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(env.app, name="env")
app.add_typer(dataset.app, name="dataset")
app.add_typer(model.app, name="model")
app.add_typer(recipe.app, name="recipe")
app.add_typer(reward.app, name="reward")
app.command("train")(train)
app.command("eval")(evaluate)
app.command("rollout")(rollout)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aworld-train {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train tool-using LLM agents from one YAML recipe."""


def main() -> None:
    """Run the command line and leave the process with its exit code: 0 ok, 1 failure, 2 usage, 130 interrupt."""
    arguments = sys.argv[1:]
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        code = app(args=[a for a in arguments if a != "--debug"], standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except AworldTrainError as error:
        code = error.exit_code
        _report(error.kind, error.message, as_json)
        if debug:
            traceback.print_exc()
    except Exception as error:
        code = _report_click(error, as_json, debug)
    if code == INTERRUPTED:  # typer turns an interrupt inside a command into this code
        _report("interrupted", "interrupted", as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _report(kind: str, message: str, as_json: bool) -> None:
    message = mask(message)
    if as_json:
        sys.stdout.write(json.dumps({"error": {"kind": kind, "message": message}}) + "\n")
    sys.stderr.write(f"error: {message}\n")


def _report_click(error: Exception, as_json: bool, debug: bool) -> int:
    """Exit code for click's own errors (bad option, abort); anything unforeseen is a failure, said in a line."""
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    show = getattr(error, "format_message", None)
    if show is not None:
        _report("usage", show(), as_json)
        return int(getattr(error, "exit_code", 2))
    _report("internal", f"{type(error).__name__}: {error} (run with --debug for the traceback)", as_json)
    if debug:
        traceback.print_exc()
    return 1
