"""A command whose module is imported when the command is called.

The list of commands needs only the name and the help line of each, which are given where the command is registered.
Therefore ``aworld-train --help`` imports no command and takes hardly longer than importing typer.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand


class LazyCommand(TyperCommand):
    """Stands for the command that ``target`` names, as ``module:attribute``: a function, or a ``typer.Typer``.

    Args:
        name: The command's name.
        target: The command.
        help: Its line in the list of commands.
        below: Commands whose name may stand in the place of its first argument, each as a target.
    """

    def __init__(self, name: str, target: str, help: str, below: Mapping[str, str] | None = None):
        # typer never cuts off an explicit short help.
        super().__init__(name=name, help=help, short_help=help)
        self.target = target
        self.below = dict(below or {})

    def load(self, below: str | None = None) -> Any:
        """The click command itself, or one of those below it. Raises ImportError where its module needs a package."""
        module, attribute = (self.below[below] if below else self.target).split(":")
        target = getattr(import_module(module), attribute)
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=self.name)
        else:
            app.command(self.name)(target)
        return typer.main.get_group(app).commands[str(self.name)]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the loaded command, which typer then runs."""
        if args and args[0] in self.below:
            return self.load(args[0]).make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return self.load().make_context(info_name, args, parent, **extra)
