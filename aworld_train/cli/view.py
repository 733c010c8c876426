"""``aworld-train view``: shows runs and their episodes in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli.arguments import RUNS
from aworld_train.cli.console import note, print_json
from aworld_train.errors import UsageError


def view(
    runs: Annotated[
        Path,
        typer.Argument(metavar="[RUNS]", help="The folder in which run folders are, or one run's folder."),
    ] = RUNS,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Where to listen; default: 8642, or any if that is taken."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with the address, and open no browser.")
    ] = False,
) -> None:
    """Show runs and their episodes in a browser: curves, conversations, tool calls, tokens, scores.

    Also of running ones: the page follows them. The server listens on 127.0.0.1 only, and only reads; for another
    machine's, forward its port (ssh -L 8642:127.0.0.1:8642 HOST). The address has a token that works once, for one
    browser; from then on, addresses of the page can be kept and opened again there. Ctrl-C ends it.

    Examples:
        aworld-train view
        aworld-train view runs/quickstart
        aworld-train view --no-browser --port 8642
    """
    import asyncio

    from aworld_train.training.run_files import RECIPE

    shown = runs.resolve().name if (runs / RECIPE).is_file() else None
    folder = runs.resolve().parent if shown else runs
    if not folder.is_dir():
        raise UsageError(
            f"No such folder: {folder}. Name the one in which run folders are: aworld-train view RUNS."
        )
    asyncio.run(_serve(folder, shown, port, browser=not (no_browser or as_json), as_json=as_json))


async def _serve(folder: Path, shown: str | None, port: int | None, *, browser: bool, as_json: bool) -> None:
    import asyncio
    import signal
    import webbrowser
    from urllib.parse import urlencode

    from aworld_train import temporary
    from aworld_train.view.server import PageServer

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    server = PageServer(folder)
    async with server.running(port) as address:
        if shown:
            address += f"&{urlencode({'run': shown})}"
        if as_json:
            print_json({"url": address, "port": server.port})
        else:
            note(f"The page is at {address}\nThe address works once. Ctrl-C ends the server.")
        with temporary.folder_of("view") as private:
            if browser:
                await asyncio.to_thread(webbrowser.open, _page_that_leads_to(address, private).as_uri())
            await ended.wait()


def _page_that_leads_to(address: str, folder: Path) -> Path:
    """A file for the browser: the command line that starts it can be read by every user of the machine."""
    from html import escape

    page = folder / "open.html"
    page.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(address)}">',
        encoding="utf-8",
    )
    return page
