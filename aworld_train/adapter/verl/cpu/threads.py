"""How many threads each process computes with: the machine's cores, divided by the ranks that share it."""

import os


def threads_per_process(processes: int) -> int:
    """At least one thread for each of ``processes`` that compute at the same time."""
    return max(1, len(os.sched_getaffinity(0)) // max(1, processes))
