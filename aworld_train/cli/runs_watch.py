"""``aworld-train runs watch``: the live screen of a run in another terminal."""

from aworld_train.cli.arguments import RUNS, RunArgument, RunsOption
from aworld_train.cli.console import err, note


def watch(run: RunArgument, runs: RunsOption = RUNS) -> None:
    """Show the live screen of a run that another terminal, or a job, trains, until it ends.

    Ctrl-C ends the watching; the run goes on. Where the output is no terminal there is a line for each step.

    Example:

        aworld-train runs watch quickstart
    """
    from aworld_train.errors import UsageError
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.run_status import follow
    from aworld_train.training.screen import train_progress

    recorded = open_run(run, runs)
    if recorded.evaluation or recorded.status != "running":
        subject = "an evaluation" if recorded.evaluation else recorded.status
        raise UsageError(
            f"{recorded.name} is {subject}, so no training can be watched. See `runs show {run}`."
        )
    with train_progress(err, quiet=False) as progress:
        ended = follow(recorded.path, progress)
    note(f"{ended.name} is {ended.status}. See `aworld-train runs show {run}`.")
