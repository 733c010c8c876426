"""A command whose module is imported when the command is called.

The list of commands needs only the name and the help line of each, which are given where the command is registered.
Therefore ``aworld-train --help`` imports no command and takes hardly longer than importing typer.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand


class LazyCommand(TyperCommand):
    """Stands for the command that ``target`` names, as ``module:attribute``: a function, or a ``typer.Typer``."""

    def __init__(self, name: str, target: str, help: str):
        # typer never cuts off an explicit short help.
        super().__init__(name=name, help=help, short_help=help)
        self.target = target

    def load(self) -> Any:
        """The click command itself. Raises ImportError where a package that its module needs is missing."""
        module, attribute = self.target.split(":")
        target = getattr(import_module(module), attribute)
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=self.name)
        else:
            app.command(self.name)(target)
        return typer.main.get_group(app).commands[str(self.name)]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the loaded command, which typer then runs."""
        return self.load().make_context(info_name, args, parent, **extra)
