"""Evaluations that are compared: in pairs, with what else differs, and as a gate."""

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from aworld_train.cli import console
from aworld_train.cli.console import out
from aworld_train.cli.eval_compare import compare as compare_command
from aworld_train.errors import UsageError
from aworld_train.evaluation.comparing import compare_evaluations, summary_of
from aworld_train.evaluation.comparison import compare, holm
from aworld_train.evaluation.results import open_evaluation
from tests.evaluations import make_evaluation

app = typer.Typer()
app.command()(compare_command)


def run(runs: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--runs", str(runs)])


def make(runs: Path, name: str, right: int, *, tasks: int = 40, **changes: object) -> None:
    """An evaluation whose first tasks are right."""
    changes = {"attempts": 1, "score": lambda index, attempt: float(index < right)} | changes
    make_evaluation(runs, name, tasks=tasks, **changes)  # type: ignore[arg-type]


def test_differences_are_of_the_tasks_in_common_with_holms_p_values(tmp_path: Path) -> None:
    make(tmp_path, "a", 20)
    make(tmp_path, "b", 30)
    make(tmp_path, "c", 18, tasks=30)
    evaluations = [open_evaluation(name, tmp_path) for name in "abc"]
    better, worse = compare_evaluations(evaluations)
    assert better.difference == compare(evaluations[0].scores, evaluations[1].scores)
    assert [better.p_value, worse.p_value] == holm([better.difference.p_value, worse.difference.p_value])
    assert better.is_shown and not worse.is_shown
    assert [flip.index for flip in better.won] == list(range(20, 30)) and better.lost == ()
    assert [flip.index for flip in worse.lost] == [18, 19]
    assert (worse.lost[0].before, worse.lost[0].after) == (1.0, 0.0)
    assert worse.lost[0].question.startswith("A crate holds 30 boxes")
    assert (worse.difference.tasks, worse.only_first, worse.only_this) == (30, 10, 0)


def test_what_else_differs_is_a_warning(tmp_path: Path) -> None:
    make(tmp_path, "a", 20)
    make(tmp_path, "b", 20, temperature=0.0, attempts=2)
    make(tmp_path, "c", 20, score=lambda index, attempt: None if index > 30 else 1.0)
    make(tmp_path, "d", 20, leave_out=lambda index, attempt: index == 39)
    first, *others = (open_evaluation(name, tmp_path) for name in "abcd")
    sampled, failing, unfinished = (each.warnings for each in compare_evaluations([first, *others]))
    assert any("numbers of attempts a task differ: 1 and 2" in each for each in sampled)
    assert any("temperatures differ: 0.6 and 0.0" in each for each in sampled)
    assert any("9 tasks have a score in one of them alone" in each for each in failing)
    assert any("0.0% and 22.5%" in each for each in failing)
    assert any("39 of its 40 attempts" in each for each in unfinished)
    assert compare_evaluations([first, first])[0].warnings == ()


def test_nothing_in_common_and_nothing_to_compare_are_usage_errors(tmp_path: Path) -> None:
    make(tmp_path, "a", 2, tasks=3)
    make(tmp_path, "b", 2, tasks=3, extra_text="other")
    evaluations = [open_evaluation(name, tmp_path) for name in "ab"]
    with pytest.raises(UsageError, match="no task in common"):
        compare_evaluations(evaluations)
    with pytest.raises(UsageError, match="two evaluations or more"):
        compare_evaluations(evaluations[:1])
    done = run(tmp_path, "a", "bb")
    assert isinstance(done.exception, UsageError) and "bb" in str(done.exception)


@pytest.mark.parametrize(
    ("right", "limit", "code", "excludes"),
    [
        (70, "0.02", 0, True),
        (49, "0.02", 0, False),
        (48, "0.02", 0, False),
        (47, "0.02", 1, False),
        (30, "0.02", 1, True),
    ],
)
def test_the_gate_looks_at_the_measured_difference_and_says_what_is_excluded(
    right: int, limit: str, code: int, excludes: bool, tmp_path: Path
) -> None:
    # 48 of 100 right is -0.02 exactly, which passes.
    make(tmp_path, "a", 50, tasks=100)
    make(tmp_path, "b", right, tasks=100)
    done = run(tmp_path, "a", "b", "--fail-if-worse", limit, "--json")
    assert done.exit_code == code, done.output
    result = json.loads(done.stdout)
    (gate,) = result["comparisons"][0]["gates"]
    assert result["passed"] is gate["passed"] is (code == 0)
    assert gate["interval_excludes"] is excludes
    plain = run(tmp_path, "a", "b", "--fail-if-worse", limit)
    assert plain.exit_code == code and ("FAILED" in plain.stderr) is bool(code)
    assert ("does not exclude" in plain.stderr) is not excludes


def test_too_few_tasks_in_common_fail(tmp_path: Path) -> None:
    make(tmp_path, "a", 20)
    make(tmp_path, "b", 20, tasks=30)
    assert run(tmp_path, "a", "b", "--min-n", "30").exit_code == 0
    done = run(tmp_path, "a", "b", "--min-n", "31")
    assert done.exit_code == 1 and "30 tasks in common, and --min-n is 31" in done.stderr


def test_a_sentence_says_whether_a_difference_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "_width", 200)
    make(tmp_path, "a", 20, extra_text="[bold]\x1b[31m")
    make(tmp_path, "b", 30, extra_text="[bold]\x1b[31m")
    make(tmp_path, "c", 21, extra_text="[bold]\x1b[31m")
    done = run(tmp_path, "a", "b", "c", "--flips", "2")
    assert "b is better than a: by 25.0 points on 40 tasks" in done.stdout
    assert "It is not shown that c and a differ: 2.5 points" in done.stdout
    assert "won 10, of which 2 are:" in done.stdout and "#20" in done.stdout and "#22" not in done.stdout
    assert "\x1b" not in done.stdout and "[bold]\\x1b[31m" in done.stdout


@pytest.mark.parametrize("is_terminal", [False, True])
def test_each_evaluation_says_what_was_measured_on_one_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(console, "out", Console(force_terminal=is_terminal, width=80, color_system=None))
    name, checkpoint = "evaluation-of-the-sweep-with-a-long-name", "runs/a/checkpoints/global_step_8/actor"
    make(tmp_path, name, 20, model=checkpoint)
    make(tmp_path, "known", 30, agent="oracle", model="oracle")
    _, first, second, *_ = run(tmp_path, name, "known").stdout.splitlines()
    assert first.split()[0] == name and first.split()[-1] == checkpoint
    assert second.split()[0] == "known" and second.endswith("agent oracle")
    summaries = json.loads(run(tmp_path, name, "known", "--json").stdout)
    assert summaries["first"]["subject"] == checkpoint
    assert summaries["comparisons"][0]["subject"] == "agent oracle"


def test_the_accuracies_of_each_label_are_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "_width", 200)
    for name, right in (("a", 20), ("b", 30), ("c", 40)):
        make(tmp_path, name, right)
    done = run(tmp_path, "a", "b", "c")
    groups = [summary_of(open_evaluation(name, tmp_path)).groups["level"] for name in "abc"]
    lines = done.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.split()[:1] == ["level"])
    assert lines[begin].split() == ["level", "a", "b", "c"]
    for line, level in zip(lines[begin + 1 :], groups[0], strict=False):
        accuracies = [group[level].accuracy or 0.0 for group in groups]
        assert line.split()[0] == level
        assert [cell for cell in line.split() if cell.endswith("%")] == [f"{each:.1%}" for each in accuracies]
    assert "won" not in done.stdout.partition("\n")[2]
    summaries = json.loads(run(tmp_path, "a", "b", "--json").stdout)
    assert summaries["comparisons"][0]["groups"]["level"]["1"]["n"] == groups[1]["1"].n
