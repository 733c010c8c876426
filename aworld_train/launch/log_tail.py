"""Follows the log of a job that is asked for as a whole, again and again."""

import time
from collections.abc import Callable, Iterator

from rich.console import Console

from aworld_train.errors import AworldTrainError

POLL_SECONDS = 1.0
MAX_SILENT_SECONDS = 120.0
"""How long a cluster may be silent while a job is followed. The job keeps running in any case."""


def show_line(line: str) -> None:
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


class ClusterSilent(AworldTrainError):
    """A cluster does not answer, so nothing is known about its jobs."""

    kind = "training"


def follow_log(read_log: Callable[[], str], has_ended: Callable[[], bool], *, follow: bool) -> Iterator[str]:
    """The lines of a growing log, without line ends; ClusterSilent if the cluster is silent for too long."""
    shown = 0
    last_answer = time.monotonic()
    while True:
        try:
            # Asked first: what the job prints before its end is then in the log.
            is_last = has_ended() or not follow
            log = read_log()
            last_answer = time.monotonic()
        except ClusterSilent:
            if not follow or time.monotonic() - last_answer > MAX_SILENT_SECONDS:
                raise
            time.sleep(POLL_SECONDS)
            continue
        end = len(log) if is_last else log.rfind("\n") + 1
        yield from log[shown:end].splitlines()
        shown = max(shown, end)
        if is_last:
            return
        time.sleep(POLL_SECONDS)
