"""The table of a test run's times says what its report says, by chains and files."""

from pathlib import Path

import pytest
import test_times

from tests.conftest import CHAINS

CHAIN = next(iter(CHAINS))


def report(path: Path, *cases: tuple[str, float, int]) -> Path:
    """A report of pytest with a test of this file, seconds and starts of VeRL for each case."""
    entries = [
        f'<testcase classname="{file.removesuffix(".py").replace("/", ".")}" time="{seconds}"><properties>'
        f'<property name="starts" value="{starts}"/></properties></testcase>'
        for file, seconds, starts in cases
    ]
    path.write_text(f"<testsuites><testsuite>{''.join(entries)}</testsuite></testsuites>")
    return path


def test_parts_are_added_up_and_the_longest_comes_first(tmp_path: Path) -> None:
    first, second = CHAINS[CHAIN]
    unit = "tests/unit/test_masking.py"
    path = report(
        tmp_path / "r.xml", (first, 31, 1), (second, 20, 2), (first, 9, 0), (unit, 1, 0), (unit, 2, 0)
    )
    assert test_times.as_table([test_times.read(path)]).splitlines()[2:] == [
        f"| {CHAIN} | 60 | 3 | 3 |",
        "| 1 shorter files | 3 | 2 |  |",
        "| all | 63 | 5 | 3 |",
    ]


def test_of_several_runs_the_median_is_shown(tmp_path: Path) -> None:
    file = "tests/unit/test_masking.py"
    runs = [test_times.read(report(tmp_path / f"{n}.xml", (file, n, 0))) for n in (100, 30, 60)]
    assert f"| {file} | 60 | 1 |  |" in test_times.as_table(runs)


def test_a_test_of_a_class_belongs_to_its_file() -> None:
    assert test_times.file_of("tests.unit.test_masking.TestNames") == "tests/unit/test_masking.py"


def test_the_table_is_written_between_its_marks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{test_times.BEGIN}old\n{test_times.END}after\n")
    monkeypatch.setattr(test_times, "PAGE", page)
    path = report(tmp_path / "r.xml", ("tests/unit/test_masking.py", 75, 0))
    monkeypatch.setattr("sys.argv", ["test_times.py", "--write", str(path)])
    test_times.main()
    text = page.read_text()
    assert text.startswith(f"before\n{test_times.BEGIN}| part |") and text.endswith(
        f"{test_times.END}after\n"
    )
    assert "| tests/unit/test_masking.py | 75 | 1 |  |" in text and "old" not in text
