"""A reward named in a recipe is found and tried before a run depends on it."""

from pathlib import Path

import pytest

from aworld_train.errors import RewardError
from aworld_train.reward.loading import load_reward

OWN = "def own(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.5\n"


def test_a_reward_in_a_package_is_loaded_by_its_module_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packaged_rewards"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "scores.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    spec = "packaged_rewards.scores:own"
    assert load_reward(spec)("", "", "") == 0.5


def test_a_reward_in_a_file_is_loaded_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rewards.py").write_text(OWN)
    assert load_reward(f"{tmp_path}/rewards.py:own")("s", "", "") == 0.5
    monkeypatch.chdir(tmp_path)
    assert load_reward("rewards.py:own")("s", "", "") == 0.5


@pytest.mark.parametrize(
    "source",
    [
        "async def own(data_source, solution_str, ground_truth, extra_info): ...",
        "def own(**kwargs): ...",
        "def own(ground_truth, solution_str, *, extra_info, data_source, bonus=1): ...",
        "class Own:\n    def __call__(self, data_source, solution_str, ground_truth, extra_info): ...\n"
        "own = Own()",
    ],
)
def test_whatever_verl_can_call_is_accepted(tmp_path: Path, source: str) -> None:
    (tmp_path / "rewards.py").write_text(source)
    assert callable(load_reward(f"{tmp_path}/rewards.py:own"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("own = 3", "is of type int, not a function"),
        ("def owm(): ...", "Did you mean 'owm'"),
        ("def own(data_source, solution_str, ground_truth): ...", "extra_info"),
        ("def own(answer, truth): ...", "cannot be called with the keywords"),
        (
            "def own(data_source, solution_str, ground_truth, extra_info, judge): ...",
            "missing a required argument: 'judge'",
        ),
        (
            "def own(data_source, solution_str, ground_truth, extra_info, /): ...",
            "cannot be called with the keywords",
        ),
        ("def own(:", "SyntaxError"),
        ("import not_a_module_anywhere", "PYTHONPATH"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_a_file_whose_function_cannot_be_used_is_refused(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "rewards.py").write_text(source)
    with pytest.raises(RewardError, match=message) as caught:
        load_reward(f"{tmp_path}/rewards.py:own")
    assert "rewards.py:own" in caught.value.message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "not of the form"),
        ("aworld_train.reward.number", "not of the form"),
        ("aworld_train.reward.number:", "not of the form"),
        (":numeric_match", "not of the form"),
        ("aworld_train.reward.number:a.b", "not of the form"),
        ("rewards/own:score", "neither a module nor a path"),
        ("rewards.txt/:score", "neither a module nor a path"),
        ("nowhere/rewards.py:score", "no such file"),
        ("aworld_train.reward.nowhere:score", "ModuleNotFoundError"),
        ("aworld_train.reward.number:numeric_matches", "Did you mean 'numeric_match'"),
    ],
)
def test_a_spec_that_leads_nowhere_is_refused(spec: str, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        load_reward(spec)
