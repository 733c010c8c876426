"""``aworld-train view``: shows runs and their episodes in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli.console import note, print_json


def view(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="The folder in which run folders are, or one run's folder.")
    ] = Path("runs"),
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Where to listen; default: 8642, or any if that is taken."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with the address, and open no browser.")
    ] = False,
) -> None:
    """Show runs and their episodes in a browser, also while they go on: curves, conversations, tools, tokens, scores.

    The server listens on 127.0.0.1 only and reads only. The address has a token that works once, for one browser;
    after that, addresses of the page can be kept and shared with whoever uses this browser. Ctrl-C ends it.

    Examples:

        aworld-train view

        aworld-train view runs/quickstart

        ssh -L 8642:127.0.0.1:8642 gpu-node aworld-train view --no-browser
    """
    import asyncio

    asyncio.run(_serve(runs, port, no_browser or as_json, as_json))


async def _serve(runs: Path, port: int | None, no_browser: bool, as_json: bool) -> None:
    import asyncio
    import signal
    import webbrowser
    from urllib.parse import urlencode

    from aworld_train.errors import UsageError
    from aworld_train.training.recorded_run import RECIPE
    from aworld_train.view.server import PageServer

    is_run = (runs / RECIPE).is_file()
    folder = runs.resolve().parent if is_run else runs
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Name the one in which run folders are: aworld-train view RUNS.")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    server = PageServer(folder)
    async with server.running(port) as address:
        if is_run:
            address += f"&{urlencode({'run': runs.resolve().name})}"
        if as_json:
            print_json({"url": address, "port": server.port})
        else:
            note(f"The page is at {address}\nThe address works once. Ctrl-C ends the server.")
        if not no_browser:
            await asyncio.to_thread(webbrowser.open, address)
        await ended.wait()
