"""Reads all files from elsewhere and writes into the README what was read: ``python -m tests.strangers.table``."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.strangers.files import FILES, TRY_ALL, Stranger

HERE = Path(__file__).parents[2]
README = HERE / "README.md"
BEGIN, END = "<!-- strangers: begin -->", "<!-- strangers: end -->"
VARIABLE = "GAIA_TOOLS_STRANGERS"
_HEAD = "| kind | files | from | read by | compared with | agree | seconds (median) |\n|---|---|---|---|---|---|---|\n"


def main() -> int:
    """The exit status of the tests; the README is written where they pass."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "readings.jsonl")
        variables = {**os.environ, VARIABLE: str(file), "GAIA_TOOLS_TESTS_NEED_ALL": "1", TRY_ALL: "1"}
        command = [sys.executable, "-m", "pytest", "-q", "tests/test_strangers.py", *sys.argv[1:]]
        done = subprocess.run(command, cwd=HERE, env=variables)
        if done.returncode == 0:
            readings = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
            after = rest.partition(END)[2]
            README.write_text(f"{before}{BEGIN}\n{table(FILES, readings)}{END}{after}", encoding="utf-8")
    return done.returncode


def table(files: tuple[Stranger, ...], readings: list[dict[str, Any]]) -> str:
    """A row for each kind of file, in the order of the files, and one for all."""
    results = {one["name"]: one for one in readings}
    rows = [
        _row(kind, [one for one in files if one.kind == kind], results)
        for kind in _unique(one.kind for one in files)
    ]
    return _HEAD + "".join(rows) + _row("all", list(files), results, names=False)


def _row(kind: str, files: list[Stranger], results: dict[str, Any], names: bool = True) -> str:
    read = [results[one.name] for one in files if one.name in results]
    packages = _unique(one.package.name for one in files)
    columns = [
        kind,
        str(len(_unique((one.package.name, one.member) for one in files))),
        ", ".join(packages) if names else f"{len(packages)} packages",
        ", ".join(f"`{tool}`" for tool in _unique(one.tool for one in files)) if names else "",
        "; ".join(_unique(one.check.by for one in files)) if names else "",
        f"{sum(one['agrees'] for one in read)} of {len(files)}",
        f"{statistics.median(one['seconds'] for one in read):.2f}" if read else "-",
    ]
    return f"| {' | '.join(columns)} |\n"


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


if __name__ == "__main__":
    sys.exit(main())
