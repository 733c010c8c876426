"""The number of threads per process: the machine's cores, divided among the ranks that share it."""

import os


def threads_per_process(processes: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // max(1, processes))
