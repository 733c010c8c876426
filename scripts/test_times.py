#!/usr/bin/env python3
"""Where the time of a test run goes: by the parts that one process runs from beginning to end, longest first.

    scripts/test.sh                                     # writes .cache/tests.xml
    python scripts/test_times.py .cache/tests.xml       # or the reports of several runs, whose median is shown
    python scripts/test_times.py --write REPORT ...     # puts the table into CONTRIBUTING.md

The reports are pytest's (``--junitxml``). A part is a chain of ``tests/conftest.py``, or else a file; what takes less
than a minute is one line.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- the table of scripts/test_times.py -->\n", "<!-- its end -->\n"
MIN_SHOWN_SECONDS = 60.0


@dataclass(frozen=True)
class Cost:
    """What a part took: seconds in its process, tests, and starts of VeRL."""

    seconds: float = 0.0
    tests: int = 0
    starts: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.tests + other.tests, self.starts + other.starts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    parser.add_argument("--write", action="store_true", help="put the table into CONTRIBUTING.md")
    options = parser.parse_args()
    table = as_table([read(report) for report in options.reports])
    if not options.write:
        sys.stdout.write(table)
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")


def read(report: Path) -> dict[str, Cost]:
    sys.path.insert(0, str(ROOT))
    from tests.conftest import CHAINS

    chain_of = {file: chain for chain, files in CHAINS.items() for file in files}
    costs: defaultdict[str, Cost] = defaultdict(Cost)
    for case in ElementTree.parse(report).iter("testcase"):
        file = file_of(case.get("classname", ""))
        starts = sum(int(p.get("value", 0)) for p in case.iter("property") if p.get("name") == "starts")
        costs[chain_of.get(file, file)] += Cost(float(case.get("time", 0)), 1, starts)
    return dict(costs)


def file_of(classname: str) -> str:
    """The file of a test; pytest writes ``tests.unit.test_a``, with the names of classes after it."""
    path = ROOT
    for name in classname.split("."):
        path = path / name
        if path.with_suffix(".py").is_file():
            return str(path.with_suffix(".py").relative_to(ROOT))
    return classname


def as_table(runs: Sequence[dict[str, Cost]]) -> str:
    """A Markdown table of the median of several runs, of what takes long in any."""
    costs = {
        part: middle([run.get(part, Cost()) for run in runs]) for part in {p for run in runs for p in run}
    }
    shown = [part for part, cost in costs.items() if cost.seconds >= MIN_SHOWN_SECONDS]
    rows = [(part, costs[part]) for part in sorted(shown, key=lambda part: -costs[part].seconds)]
    rest = sum((cost for part, cost in costs.items() if part not in shown), Cost())
    rows.append((f"{len(costs) - len(shown)} shorter files", rest))
    rows.append(("all", sum(costs.values(), Cost())))
    lines = ["| part | seconds | tests | starts of VeRL |", "|---|---|---|---|"]
    lines += [f"| {part} | {cost.seconds:.0f} | {cost.tests} | {cost.starts or ''} |" for part, cost in rows]
    return "\n".join(lines) + "\n"


def middle(costs: Iterable[Cost]) -> Cost:
    costs = list(costs)
    return Cost(
        median(cost.seconds for cost in costs),
        round(median(cost.tests for cost in costs)),
        round(median(cost.starts for cost in costs)),
    )


if __name__ == "__main__":
    main()
