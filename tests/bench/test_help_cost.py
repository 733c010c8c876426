"""What ``aworld-train --help`` costs a person who only wants to read it."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 0.30
"""CPU-seconds. A shell user notices half a second; typer and rich with their help page take half of this."""


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run of ``command``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.bench
def test_help_costs_at_most_a_third_of_a_second() -> None:
    command = [str(Path(sys.executable).parent / "aworld-train"), "--help"]
    cpu_seconds(command)
    assert statistics.median(cpu_seconds(command) for _ in range(5)) <= LIMIT
