"""The program of a worker process: it loads scorers by reference and scores one answer after another.

It is a new interpreter, so it has none of the trainer's threads, event loops, signal handlers or devices. Its standard
input closes when the parent ends, and the kernel then ends this process, even inside C code.
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
from multiprocessing.connection import Connection
from typing import Any

from aworld_train.reward.results import BadResult, describe, read_result
from aworld_train.reward.reward_function import reward_function_scorer
from aworld_train.reward.score_types import ScoringContext, TooHard
from aworld_train.reward.scorers import Scorer, ScorerKind, find_scorer
from aworld_train.reward.settings import RewardSettings

_MAX_MEGABYTES = 4096


def main(descriptor: int) -> None:
    _end_with_parent()
    _limit_memory()
    parent: Connection[Any, Any] = Connection(descriptor)
    with asyncio.Runner() as runner:
        while True:
            try:
                request, kind, reference, *arguments = parent.recv()
            except (EOFError, OSError):
                return
            if request == "load":
                parent.send(_load(kind, reference, *arguments))
            else:
                parent.send(_score(_find(kind, reference), arguments, runner))


def _find(kind: ScorerKind, reference: str) -> Scorer:
    if kind is ScorerKind.reward_function:
        return reward_function_scorer(reference)
    return find_scorer(reference)


def _load(kind: ScorerKind, reference: str, path: list[str]) -> tuple[str, str]:
    """Find and prepare the scorer, without a time limit here: ("ready", "") or ("error", cause)."""
    sys.path[:] = path  # the parent may have added directories since this process began
    importlib.invalidate_caches()
    try:
        scorer = _find(kind, reference)
        if scorer.prepare is not None:
            scorer.prepare()
    except BaseException as error:
        return "error", describe(error)
    return "ready", ""


def _score(scorer: Scorer, arguments: list[Any], runner: asyncio.Runner) -> tuple[Any, ...]:
    """("score", value, parts, steps), or a failure and its cause; after ("spent", cause) this worker is ended."""
    try:
        score = read_result(_call(scorer, arguments, runner))
        return "score", score.value, dict(score.parts), score.steps
    except TooHard as error:
        return "too_hard", str(error)
    except BadResult as error:
        return "error", str(error)
    except MemoryError as error:
        return "spent", f"{describe(error)}; it may use {_MAX_MEGABYTES} MB"
    except BaseException as error:
        return "error", describe(error)


def _call(scorer: Scorer, arguments: list[Any], runner: asyncio.Runner) -> Any:
    answer, ground_truth, context = arguments
    if context is None:
        result = scorer.function(answer, ground_truth)
    else:
        settings = RewardSettings.from_plain(context["settings"])
        result = scorer.function(answer, ground_truth, ScoringContext(**{**context, "settings": settings}))
    return runner.run(_await_result(result)) if inspect.isawaitable(result) else result


async def _await_result(result: Any) -> Any:
    return await result


def _end_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    lifeline = os.dup(0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the parent ended before the signal was set up
        sys.exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _limit_memory() -> None:
    """Limit written memory (RLIMIT_DATA), not reserved memory: libraries reserve far more than they use."""
    limit = _MAX_MEGABYTES * 2**20
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))
