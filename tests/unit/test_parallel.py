"""Tests in several processes are told as those in one are, whatever becomes of a process."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.locations import REPOSITORY

CONFTEST = """
import pytest
from tests import parallel

def pytest_runtestloop(session):
    chains = {}
    for item in session.items:
        chains.setdefault(item.path, []).append(item)
    parallel.run(session, list(chains.values()), 2)
    return True

@pytest.fixture(scope="session")
def noted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noted")
    yield folder
    print(f"the end of {folder}")
"""
FILES = {
    "test_one.py": """
import os

def test_passes(noted, record_property):
    record_property("process", str(os.getpid()))

def test_fails(noted):
    print("what it said")
    assert "this" == "that"

def test_ends_its_process(noted):
    os._exit(3)

def test_comes_after(noted, record_property):
    record_property("process", str(os.getpid()))
""",
    "test_two.py": """
import os, random, pytest
from pathlib import Path

def test_another(noted, record_property):
    record_property("process", str(os.getpid()))
    assert noted.parent.parent == Path(os.environ["AWORLD_TRAIN_TESTS_SHARED_FOLDER"])

@pytest.mark.skip(reason="not now")
def test_is_skipped():
    pass
""",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in {"conftest.py": CONFTEST, **FILES}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(suite: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-c", os.devnull, "--rootdir", suite, *arguments, suite],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def test_every_test_is_told_with_its_output_and_one_that_ends_its_process_has_failed(suite: Path) -> None:
    done = run(suite, "--junitxml=report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 3 passed, 1 skipped" in done.stdout
    assert "what it said" in done.stdout
    assert done.stdout.count("FAILED test_one.py::test_fails") == 2  # when it happens, and at the end
    assert "The process that ran this test ended with 3." in done.stdout
    cases = {
        case.get("name"): [entry.get("value") for entry in case.iter("property")]
        for case in ElementTree.parse(suite / "report.xml").iter("testcase")
    }
    assert len(cases) == 6
    processes = {cases[name][0] for name in ("test_passes", "test_comes_after", "test_another")}
    assert len(processes) == 3


def test_no_more_tests_are_begun_after_as_many_failures_as_are_allowed(suite: Path) -> None:
    done = run(suite, "-x")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stopping after 1 failures" in done.stdout
    assert "The process that ran" not in done.stdout


def test_what_a_module_makes_for_a_parameter_is_made_once(request: pytest.FixtureRequest) -> None:
    """Where pytest runs tests with another parameter in between, it makes it again."""
    current: dict[tuple[str, str], str] = {}
    made = Counter[tuple[str, str, str]]()
    for item in request.session.items:
        for name, value in getattr(item, "callspec", SimpleNamespace(params={})).params.items():
            fixture = item._fixtureinfo.name2fixturedefs[name][-1]  # type: ignore[attr-defined]
            at = (item.nodeid.partition("::")[0], name)
            if fixture.scope == "module" and not fixture.func.__module__.startswith("_pytest."):
                made[*at, repr(value)] += current.get(at) != repr(value)
                current[at] = repr(value)
    assert [each for each, times in made.items() if times > 1] == []
