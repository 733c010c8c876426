"""Runs all tests and writes what they called into the README's table: ``python -m tests.table`` in the folder above."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.recorded_calls import VARIABLE
from tests.strangers.files import TRY_ALL

HERE = Path(__file__).parent.parent
README = HERE / "README.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
_HEAD = "| server | tool | exercised with | tests | calls | seconds (median) |\n|---|---|---|---|---|---|\n"


def main() -> int:
    """The exit status of the tests; the README is written where they pass."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "calls.jsonl")
        everything = {**os.environ, VARIABLE: str(file), "GAIA_TOOLS_TESTS_NEED_ALL": "1", TRY_ALL: "1"}
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", *sys.argv[1:]], cwd=HERE, env=everything)
        if done.returncode == 0:
            calls = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
            after = rest.partition(END)[2]
            README.write_text(f"{before}{BEGIN}\n{table(calls)}{END}{after}", encoding="utf-8")
    return done.returncode


def table(calls: list[dict[str, Any]]) -> str:
    """The table, in the order of ``servers.yaml``; tools in the order in which they were first called."""
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(calls))


def _rows(calls: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    servers = yaml.safe_load((HERE / "servers.yaml").read_text(encoding="utf-8"))["servers"]
    for server in servers:
        of_server = [one for one in calls if one["server"] == server]
        for tool in dict.fromkeys(one["tool"] for one in of_server):
            of_tool = [one for one in of_server if one["tool"] == tool]
            seconds = [one["seconds"] for one in of_tool if one["succeeded"]]
            kinds = sorted({kind for one in of_tool for kind in one["with"]})
            tests = {one["test"].partition("[")[0] for one in of_tool}
            yield (
                f"`{server}`",
                f"`{tool}`",
                " ".join(kinds) or "-",
                str(len(tests)),
                str(len(of_tool)),
                f"{statistics.median(seconds):.3f}" if seconds else "-",
            )


if __name__ == "__main__":
    sys.exit(main())
