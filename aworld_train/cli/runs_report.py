"""``aworld-train runs report``: a run as one HTML file, for mail and for artefacts of CI."""

from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsOption
from aworld_train.cli.console import note, print_json


def report(
    run: RunArgument,
    target: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")],
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=0, max=5000, help="The most episodes that are in it.")
    ] = 200,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write a run as one HTML file that needs no server: its figures and curves, and a sample of its episodes.

    The sample is the same each time: of each outcome as many, spread over the steps. Texts over 10,000 characters are
    shortened. The file holds what the model and the tools wrote; give it to those who may read that.

    Examples:

        aworld-train runs report quickstart --out quickstart.html

        aworld-train runs report runs/quickstart --out report.html --episodes 50
    """
    from aworld_train.errors import AworldTrainError
    from aworld_train.store.database import StoreUnreachable
    from aworld_train.training.recorded_run import open_run
    from aworld_train.view.report import write_report

    try:
        written = write_report(open_run(run, runs), target, episodes=episodes)
    except StoreUnreachable as error:
        raise AworldTrainError(
            f"The database with the episodes of {run} does not answer: {error}."
        ) from error
    if as_json:
        print_json(
            {"report": str(target), "bytes": written.size, "episodes": written.episodes, "of": written.total}
        )
    else:
        note(
            f"The report is {target}, {written.size / 1e6:.1f} MB, with {written.episodes} of {written.total} episodes."
        )
