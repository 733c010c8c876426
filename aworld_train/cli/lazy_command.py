"""A command whose module is imported when the command is called.

A list of commands needs a name and a line of help for each of them, and both are written where the command is
registered. So ``aworld-train --help`` imports none of the commands, and costs hardly more than typer itself.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand


class LazyCommand(TyperCommand):
    """Stands for the command that ``target`` names, as ``module:attribute``: a function, or a ``typer.Typer``."""

    def __init__(self, name: str, target: str, help: str):
        # What is given as the short help is never cut off.
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
        """The context of the command itself, which is what then runs."""
        return self.load().make_context(info_name, args, parent, **extra)
