"""A command whose module is imported when the command is called, so that ``aworld-train --help`` imports none."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand


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
