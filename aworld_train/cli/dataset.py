"""``aworld-train dataset``: build a dataset from sources, check a file, look at its rows, count them."""

import typer

from aworld_train.cli.dataset_build import build_command
from aworld_train.cli.dataset_check import check_command
from aworld_train.cli.dataset_views import show_command, stats_command

app = typer.Typer(no_args_is_help=True, help="Build, check and look at datasets of tasks.")
app.command("build")(build_command)
app.command("check")(check_command)
app.command("show")(show_command)
app.command("stats")(stats_command)
