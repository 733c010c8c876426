"""What ``aworld-train --help`` costs a person who only wants to read it."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

MAX_RATIO = 1.5
"""CPU time against ``import typer``, the least that a command line made with typer can cost. Measured: 1.1."""
RUNS = 15


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run of ``command``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.bench
def test_help_costs_at_most_half_as_much_again_as_importing_typer() -> None:
    help_command = [str(Path(sys.executable).parent / "aworld-train"), "--help"]
    floor_command = [sys.executable, "-c", "import typer"]
    for command in (help_command, floor_command):
        cpu_seconds(command)
    pairs = [(cpu_seconds(help_command), cpu_seconds(floor_command)) for _ in range(RUNS)]
    help_cost, floor_cost = (statistics.median(costs) for costs in zip(*pairs, strict=True))
    print(
        f"help {help_cost * 1000:.0f} ms of CPU, typer {floor_cost * 1000:.0f} ms: {help_cost / floor_cost:.2f}"
    )
    assert help_cost <= MAX_RATIO * floor_cost
