"""The number of threads per process: the machine's cores, divided among the ranks that share it."""

import os


def threads_per_process(processes: int) -> int:
    """The threads for each of ``processes`` that compute at the same time; at least one."""
    return max(1, len(os.sched_getaffinity(0)) // max(1, processes))
