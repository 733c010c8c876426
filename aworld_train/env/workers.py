"""How many workers an environment has where nobody says it."""

import os

import psutil

from aworld_train.env.directory import EnvDirectory
from aworld_train.errors import UsageError

_MAX_DEFAULT_WORKERS = 4
_WORKERS_PER_CORE = 2  # tools wait most of the time
_WORKER_BYTES = 600_000_000  # the most that a worker of gaia-mcp-server held in 125 calls of its tools
_MEMORY_SHARE = 0.5


def worker_count(directory: EnvDirectory, count: int | None, sessions: int | None) -> int:
    """The workers of an environment that is started on this machine, for that many sessions if known."""
    if count is not None and count < 1:
        raise UsageError(f"--workers is {count}: there has to be at least one.")
    if count is not None:
        return count
    if directory.manifest.sessions_per_worker > 1:
        return 1
    cores = os.cpu_count() or 1
    if sessions is None:
        return min(cores, _MAX_DEFAULT_WORKERS)
    in_memory = psutil.virtual_memory().available * _MEMORY_SHARE // _WORKER_BYTES
    return max(1, min(sessions, cores * _WORKERS_PER_CORE, int(in_memory)))
