"""Scorers are found by name, and what cannot be one is refused before a run depends on it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.errors import RewardError
from aworld_train.reward import scorers
from aworld_train.reward.scorers import BUILT_IN, find_scorer, register_scorer, scorer_names
from aworld_train.reward.scoring import score_now
from tests.unit.test_imports import imported_by

HEAVY = ["math_verify", "numpy", "omegaconf", "pandas", "ray", "sympy", "torch", "verl"]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names that a test gives are forgotten after it; those that modules give as they are imported are not."""
    for name in BUILT_IN:
        find_scorer(name)
    monkeypatch.setattr(scorers, "_registered", dict(scorers._registered))
    monkeypatch.setattr(scorers, "_found", {})
    yield


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> str:
    """A module that can be imported, by its name."""
    name = f"scorers_of_{folder.name}"
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_scorer_is_where_the_table_says(name: str) -> None:
    found = find_scorer(name)
    assert (found.name, found.reference) == (name, name)
    assert found.arguments in (2, 3)
    assert find_scorer(BUILT_IN[name]) == found


def test_no_built_in_scorer_needs_anything_heavy_to_be_found() -> None:
    script = "from aworld_train.reward.scorers import *\nfor name in scorer_names(): find_scorer(name)"
    assert imported_by(script, HEAVY) == "[]"
    clients = ["aiohttp", "httpx", "mcp", "pyarrow"]
    assert (
        imported_by(
            "import aworld_train.reward.scoring, aworld_train.evaluation.prediction_files", HEAVY + clients
        )
        == "[]"
    )


def test_math_alone_runs_apart_and_composite_alone_hands_on() -> None:
    found = [find_scorer(name) for name in BUILT_IN]
    assert [one.name for one in found if one.isolated] == ["math"]
    assert [one.name for one in found if one.delegates] == ["composite"]


def test_an_unknown_name_says_which_may_be_meant() -> None:
    with pytest.raises(
        RewardError, match=r"Unknown scorer 'gaja'.*Did you mean 'gaia'.*composite.*module:function"
    ):
        find_scorer("gaja")


def test_a_registered_name_is_known_here_and_its_reference_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from aworld_train.reward.scorers import register_scorer\n"
        "@register_scorer('mine')\ndef own(answer, truth): return 0.25\n"
    )
    name = module(tmp_path, monkeypatch, source)
    with pytest.raises(RewardError, match="Unknown scorer 'mine'"):
        find_scorer("mine")
    __import__(name)
    found = find_scorer("mine")
    assert "mine" in scorer_names()
    assert (found.name, found.reference, found.isolated) == ("mine", f"{name}:own", True)
    assert find_scorer(found.reference).function is found.function
    # The worker is another process, which knows the reference alone.
    assert score_now("<answer>1</answer>", ground_truth="", scorer="mine").score == 0.25


def test_a_file_that_registers_may_be_loaded_again_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from aworld_train.reward.scorers import register_scorer\n"
        "@register_scorer('again')\ndef own(answer, truth): return 1\n"
    )
    assert find_scorer(f"{path}:own").reference == f"{path}:own"
    scorers._found.clear()
    assert find_scorer(f"{path}:own").isolated


def test_a_relative_path_becomes_one_that_other_processes_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text("def own(answer, truth, context): return 1\n")
    monkeypatch.chdir(tmp_path)
    found = find_scorer("own.py:own")
    assert found.reference == f"{tmp_path}/own.py:own"
    assert found.arguments == 3


@pytest.mark.parametrize(
    ("source", "arguments", "is_async"),
    [
        ("def own(answer, ground_truth): ...", 2, False),
        ("def own(answer, ground_truth, context): ...", 3, False),
        ("def own(answer, ground_truth, context=None, *, bonus=1): ...", 3, False),
        ("def own(*given): ...", 3, False),
        ("async def own(answer, ground_truth): ...", 2, True),
        ("class Own:\n    async def __call__(self, a, b, c): ...\nown = Own()", 3, True),
    ],
)
def test_two_or_three_arguments_sync_or_async(
    tmp_path: Path, source: str, arguments: int, is_async: bool
) -> None:
    (tmp_path / "own.py").write_text(source)
    found = find_scorer(f"{tmp_path}/own.py:own")
    assert (found.arguments, found.is_async, found.isolated) == (arguments, is_async, True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def own(answer): ...", r"neither|cannot be called with \(answer, ground_truth\).*own\(answer\)"),
        ("def own(answer, truth, context, more): ...", "cannot be called with"),
        ("def own(answer, truth, *, judge): ...", "cannot be called with"),
        ("own = 3", "of type int"),
        ("def owm(answer, truth): ...", "Did you mean 'owm'"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_called_is_refused_when_it_is_loaded(
    tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(RewardError, match=message):
        find_scorer(f"{tmp_path}/own.py:own")


def test_a_name_belongs_to_one_function() -> None:
    def other(answer: str, truth: str) -> bool:
        return True

    def one(answer: str, truth: str) -> bool:
        return True

    register_scorer("taken-by-a-test")(one)
    register_scorer("taken-by-a-test")(one)
    with pytest.raises(RewardError, match=r"taken-by-a-test.*one.*another name"):
        register_scorer("taken-by-a-test")(other)
    with pytest.raises(RewardError, match=r"'gaia': that is aworld_train.reward.gaia:gaia"):
        register_scorer("gaia")(other)
    with pytest.raises(RewardError, match="no colon"):
        register_scorer("a:b")(other)


def test_a_function_that_no_other_process_could_load_is_refused() -> None:
    def inner(answer: str, truth: str) -> bool:
        return True

    register_scorer("of-a-test")(inner)
    with pytest.raises(RewardError, match="top level of a module"):
        find_scorer("of-a-test")


def test_a_scorer_with_too_few_arguments_cannot_be_registered() -> None:
    def lonely(answer: Any) -> bool:
        return True

    with pytest.raises(RewardError, match="cannot be called with"):
        register_scorer("lonely")(lonely)
    assert "lonely" not in scorer_names()
    assert "lonely" not in sys.modules
