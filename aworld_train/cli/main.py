"""The command ``aworld-train``: registers the subcommands and converts errors into exit codes.

A command's module is imported when the command is called, and heavy modules when the command runs, so that ``--help``
takes hardly longer than importing typer. For the same reason the list of commands is printed without rich.
"""

import errno
import json
import locale
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from aworld_train import __version__
from aworld_train.cli.termination import Terminated
from aworld_train.errors import TRAINING_PROFILE, AworldTrainError, DependencyMissing, UsageError
from aworld_train.masking import mask

INTERRUPTED, TERMINATED = 130, 143


class LazyCommand(TyperCommand):
    """Stands for the command that ``target`` names, as ``module:attribute``: a function, or a ``typer.Typer``.

    ``below`` are commands whose name may be in the place of its first argument, each as a target.
    """

    def __init__(self, name: str, target: str, help: str, below: Mapping[str, str] | None = None):
        # typer never cuts off an explicit short help.
        super().__init__(name=name, help=help, short_help=help)
        self.target = target
        self.below = dict(below or {})

    def load(self, below: str | None = None) -> Any:
        module, attribute = (self.below[below] if below else self.target).split(":")
        target = getattr(import_module(module), attribute)
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=self.name)
        else:
            app.command(self.name)(target)
        return typer.main.get_group(app).commands[str(self.name)]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] in self.below:
            return self.load(args[0]).make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return self.load().make_context(info_name, args, parent, **extra)


COMMANDS = (
    LazyCommand("train", "aworld_train.cli.train:train", "Train the agent that a recipe describes."),
    LazyCommand(
        "eval",
        "aworld_train.cli.evaluate:evaluate",
        "Measure an agent on a dataset with its tools: k attempts a task, every one kept, with honest intervals.",
        below={
            "compare": "aworld_train.cli.eval_compare:compare",
            "report": "aworld_train.cli.evaluate:report",
        },
    ),
    LazyCommand(
        "rollout",
        "aworld_train.cli.rollout:rollout",
        "Play single episodes without training: turns, tool calls, tokens and which of them are trained on, reward,"
        " time.",
    ),
    LazyCommand("runs", "aworld_train.cli.runs:app", "Look at runs, compare them, and make one again."),
    LazyCommand(
        "view",
        "aworld_train.cli.view:view",
        "Show runs and their episodes in a browser: curves, conversations, tool calls, tokens, scores.",
    ),
    LazyCommand("env", "aworld_train.cli.env:app", "Start and stop tool environments."),
    LazyCommand("dataset", "aworld_train.cli.dataset:app", "Build, check and look at datasets of tasks."),
    LazyCommand("model", "aworld_train.cli.model:app", "A model that needs no download."),
    LazyCommand("recipe", "aworld_train.cli.recipe:app", "Look at recipes and check them."),
    LazyCommand(
        "doctor",
        "aworld_train.cli.doctor:doctor",
        "Look at this machine: what is there, what a recipe will miss, and what to do about it.",
    ),
    LazyCommand(
        "reward", "aworld_train.cli.reward:app", "Score answers offline, and explain a score step by step."
    ),
)
"""The commands in the order of the help; each line is the first paragraph of the command's own help."""


class _Commands(TyperGroup):
    def __init__(self, **settings: Any):
        super().__init__(**settings)
        for command in COMMANDS:
            self.add_command(command)


app = typer.Typer(
    name="aworld-train",
    cls=_Commands,
    help="Train tool-using LLM agents from one YAML recipe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
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
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"  # as container engines set it for a user without an entry


_PATH_FAULTS = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS),
}
"""What the system answers where a command was given a path that it cannot use."""


def main() -> None:
    """Run the command line and exit with its code: 0 ok, 1 failure, 2 usage, 130 interrupt, 143 SIGTERM."""
    _use_utf8()
    arguments = sys.argv[1:]
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        code = app(args=[a for a in arguments if a != "--debug"], standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
        _report("terminated", "terminated", as_json)
    except Exception as error:
        code = _report_error(error, as_json)
        if debug and not hasattr(error, "format_message") and code != INTERRUPTED:
            import traceback

            traceback.print_exc()
    if code == INTERRUPTED:  # typer turns an interrupt inside a command into this code
        _report("interrupted", "interrupted", as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _use_utf8() -> None:
    """Start again where a locale gives files and paths another encoding; with all processes that follow."""
    if locale.getpreferredencoding(do_setlocale=False).upper() != "UTF-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _report(kind: str, message: str, as_json: bool) -> None:
    message = mask(message)
    if as_json:
        sys.stdout.write(json.dumps({"error": {"kind": kind, "message": message}}) + "\n")
    sys.stderr.write(f"error: {message}\n")


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _report_error(error: Exception, as_json: bool) -> int:
    """Report an error of this package, of click (bad option, abort), of a path, or an unexpected one; the exit code."""
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    if isinstance(error, AworldTrainError):
        _report(error.kind, error.message, as_json)
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        missing = DependencyMissing(
            f"The module {error.name} is not installed. If it is not your own, it comes with the profiles that train "
            f"and load models: {TRAINING_PROFILE}."
        )
        return _report_error(missing, as_json)
    if isinstance(error, OSError) and error.filename is not None and error.errno in _PATH_FAULTS:
        fault = f"{error.filename}: {error.strerror}. Give another path, or put it right."
        return _report_error(UsageError(fault), as_json)
    if isinstance(error, FileNotFoundError) and error.filename is None and _folder_is_gone():
        fault = "The current folder was removed. Change to a folder that exists (`cd`), and run the command again."
        return _report_error(UsageError(fault), as_json)
    show = getattr(error, "format_message", None)
    if show is not None:
        message = show()
        if type(error).__name__ != "NoArgsIsHelpError":
            _report("usage", message, as_json)
        elif message:  # the help, unless rich has printed it
            typer.echo(message)
        return int(getattr(error, "exit_code", 2))
    _report("internal", f"{type(error).__name__}: {error} (run with --debug for the traceback)", as_json)
    return 1
