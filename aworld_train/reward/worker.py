"""The other end of a worker: a process that loads scorers by name and asks them, one answer after another.

It is a new interpreter, not a fork: nothing of the trainer's threads, event loops, signal handlers or devices is in it.
Its standard input is a pipe that nobody writes to and that closes when the parent ends, however that ends. The kernel
then ends this process too, also in the midst of C code that no signal handler of Python's would interrupt.
"""

import asyncio
import fcntl
import importlib
import inspect
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from aworld_train.reward.results import BadResult, describe, read_result
from aworld_train.reward.scored import ScoringContext
from aworld_train.reward.scorers import Scorer, find_scorer
from aworld_train.reward.settings import RewardSettings

_MEGABYTES = 4096


def main(descriptor: int) -> None:
    """Answer the parent until it ends."""
    _end_with_parent()
    _limit_memory()
    parent: Connection[Any, Any] = Connection(descriptor)
    with asyncio.Runner() as runner:
        while True:
            try:
                kind, reference, *arguments = parent.recv()
            except (EOFError, OSError):
                return
            if kind == "load":
                parent.send(_load(reference, *arguments))
            else:
                parent.send(_score(reference, arguments, runner))


def context_from_plain(data: Mapping[str, Any]) -> ScoringContext:
    """From what the parent sent."""
    return ScoringContext(**{**data, "settings": RewardSettings.from_plain(data["settings"])})


def _load(reference: str, path: list[str]) -> tuple[str, str]:
    """Find the scorer and have it prepare, which may take its time: ("ready", "") or ("error", why)."""
    sys.path[:] = path  # the parent may have come to know of more modules
    importlib.invalidate_caches()
    try:
        scorer = find_scorer(reference)
        if scorer.prepare is not None:
            scorer.prepare()
    except BaseException as error:
        return "error", describe(error)
    return "ready", ""


def _score(reference: str, arguments: list[Any], runner: asyncio.Runner) -> tuple[Any, ...]:
    """("score", value, parts, steps), ("error", why), or ("spent", why), after which nothing more is to be sent."""
    scorer = find_scorer(reference)
    try:
        score = read_result(_call(scorer, arguments, runner))
        return "score", score.value, dict(score.parts), score.steps
    except BadResult as error:
        return "error", str(error)
    except MemoryError as error:
        return "spent", f"{describe(error)}; it may use {_MEGABYTES} MB"
    except BaseException as error:
        return "error", describe(error)


def _call(scorer: Scorer, arguments: list[Any], runner: asyncio.Runner) -> Any:
    answer, truth, context = arguments
    given = (answer, truth) if context is None else (answer, truth, context_from_plain(context))
    result = scorer.function(*given)
    return runner.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _end_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    lifeline = os.dup(0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it had ended before
        sys.exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _limit_memory() -> None:
    """What is written to counts, not what is only reserved: threads and libraries reserve far more than they use."""
    limit = _MEGABYTES * 2**20
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
