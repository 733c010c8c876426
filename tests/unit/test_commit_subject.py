"""The check of commit subjects, and the hooks that run it."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.locations import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "check_commit_subject.sh"


def check(message: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the check on a message."""
    file = folder / "message"
    file.write_text(message, "utf-8")
    return subprocess.run([SCRIPT, file], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "reward: score answers that time out as wrong",
        "tests/unit: one\n\nA body of any length, " + "x" * 100,
        "# a comment\nenv: a subject after git's comments",
        "Merge branch 'gateway'",
        f"env: {'x' * 67}",
    ],
)
def test_a_subject_with_an_area_and_at_most_72_characters_passes(message: str, tmp_path: Path) -> None:
    assert check(message, tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"env: {'x' * 68}", "73 characters"),
        ("Fix the gateway", "no area"),
        ("reward:no space", "no area"),
        ("", "no area"),
    ],
)
def test_any_other_subject_is_refused_with_the_reason(message: str, reason: str, tmp_path: Path) -> None:
    result = check(message, tmp_path)
    assert result.returncode == 1
    assert reason in result.stderr


def test_hooks_are_local_and_need_no_network() -> None:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} <= {"system", "script"}
    (subject,) = [hook for hook in hooks if hook.get("stages") == ["commit-msg"]]
    assert REPOSITORY / subject["entry"] == SCRIPT
