"""Supervision in its parts: the run and its end, its folder, the record, the guarded process, and what people see."""

import errno
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from aworld_train import recipe as recipes
from aworld_train.adapter.base import RunPlan
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.dataset import FileSummary
from aworld_train.errors import (
    AworldTrainError,
    DiskFull,
    EnvironmentFailure,
    Preempted,
    TrainingFailure,
    TransientFailure,
    UsageError,
)
from aworld_train.masking import remember
from aworld_train.training import run
from aworld_train.training.attempt import Attempt
from aworld_train.training.curve import draw_curve
from aworld_train.training.placement import Placement
from aworld_train.training.process import run_guarded
from aworld_train.training.progress import LineProgress, Progress, Status
from aworld_train.training.run import terminate_as_interrupt, train
from aworld_train.training.run_files import is_in_use
from aworld_train.training.run_folder import RunFolder, open_run_folder
from aworld_train.training.run_metrics import RunMetrics
from aworld_train.training.summary import RunSummary, Validation
from tests.second_framework import Counting


def open_run(path: Path, recipe: dict[str, Any] | None = None, *, resume: bool = False) -> RunFolder:
    data = path.parent / "data.bin"
    if not data.exists():
        data.write_bytes(b"rows")
    return open_run_folder(
        path, VerlFramework(), recipe or {"name": "r", "trainer": {"lr": 1}}, [data], resume=resume
    )


def episode(
    step: int, *, validate: bool = False, correct: float | None = 1.0, tool_calls: int = 1, **more: Any
) -> str:
    line = {
        "step": step,
        "validate": validate,
        "index": 0,
        "outcome": "answered",
        "tool_calls": tool_calls,
        "tool_errors": 0,
        "cause": None,
        **more,
    }
    if correct is not None:
        line |= {"reward": correct, "scores": {"acc": correct}}
    return json.dumps(line) + "\n"


def trained(step: int, **more: Any) -> str:
    return json.dumps({"step": step, "data": {"actor/loss": 0.1, "critic/score/mean": 0.5, **more}}) + "\n"


def validated(step: int) -> str:
    return json.dumps({"step": step, "data": {"val-core/x/acc/mean@1": 0.5}}) + "\n"


def append(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(lines))


# The run and its end

STEP = {"step": 1, "figures": {"reward": 1.0, "loss": 0.1}, "validated": False}
SCRIPT = f"""
import os, pathlib
pathlib.Path("traces").mkdir(exist_ok=True)
pathlib.Path("traces/episodes.jsonl").write_text({episode(1)!r})
pathlib.Path(os.environ["M"]).write_text({json.dumps(STEP) + chr(10)!r})
"""


class Failing(Progress):
    """Keeps remarks, or raises what can end a run from within it when it is to show one."""

    def __init__(self, error: BaseException | None = None):
        self._error = error
        self.notes: list[str] = []

    def note(self, line: str) -> None:
        self.notes.append(line)
        if self._error is not None:
            raise self._error


def run_of(
    folder: Path,
    script: str = SCRIPT,
    *,
    progress: Failing | None = None,
    max_restarts: int = 0,
    resume: bool = False,
    **trainer: int,
) -> RunSummary:
    """A run of one step, if ``trainer`` does not say otherwise, whose framework is a script."""
    data = folder / "rows.parquet"
    data.write_bytes(b"rows")
    recipe = recipes.read(
        {
            "name": "r",
            "model": {"path": "org/model"},
            "dataset": {"train": str(data), "val": str(data)},
            "env": {"backend": "none"},
            "trainer": {"steps": 1, "max_restarts": max_restarts, **trainer},
        }
    )
    plan = RunPlan(
        {},
        "",
        (sys.executable, "-c", script),
        lambda start: {"M": str(start.metrics)},
        remarks=("It counts.",),
    )
    rows = FileSummary(data, 1, {}, {}, {}, {}, {}, {}, 0, None, 4)
    return train(
        recipe,
        Counting(),
        plan,
        folder / "run",
        model=None,
        train_data=rows,
        val_data=rows,
        resume=resume,
        progress=progress or Failing(),
        placement=Placement(remark="This is a slow machine."),
    )


def summary_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return content


def test_a_run_that_has_done_all_its_steps_is_completed(tmp_path: Path) -> None:
    summary = run_of(tmp_path)
    assert (summary.status, summary.steps_done, summary.error) == ("completed", 1, None)
    assert summary_of(tmp_path) == summary.to_json()


def test_a_framework_that_fails_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailure, match="ended with exit code 1: Error: out of order") as failure:
        run_of(tmp_path, "raise SystemExit('Error: out of order')")
    summary = summary_of(tmp_path)
    assert (summary["status"], summary["steps_done"]) == ("failed", 0)
    assert summary["error"] == {"kind": "training", "message": failure.value.message}


def test_a_framework_that_was_killed_is_started_again_as_often_as_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_SECONDS", 0.0)
    once = "import os, pathlib\nif not pathlib.Path('killed').exists():\n    pathlib.Path('killed').touch()\n"
    killed = f"{once}    os.kill(os.getpid(), 9)\n{SCRIPT}"
    for name in ("no restart", "a restart"):
        (tmp_path / name).mkdir()
    with pytest.raises(TransientFailure, match="was killed"):
        run_of(tmp_path / "no restart", killed)
    assert summary_of(tmp_path / "no restart")["status"] == "failed"
    summary = run_of(tmp_path / "a restart", killed, max_restarts=1)
    assert summary.status == "completed"
    assert [restart["from_step"] for restart in summary.restarts] == [0]


@pytest.mark.parametrize(
    ("error", "raised", "status", "kind", "message"),
    [
        (UsageError("no"), UsageError, "failed", "usage", "no"),
        (Preempted("saved"), Preempted, "interrupted", "preempted", "saved"),
        (
            OSError(errno.ENOSPC, "full"),
            DiskFull,
            "failed",
            DiskFull.kind,
            "The disk is full: nothing can be",
        ),
        (
            OSError(errno.EIO, "broken"),
            TrainingFailure,
            "failed",
            "training",
            "The run could not continue: [Errno 5]",
        ),
        (
            KeyboardInterrupt(),
            KeyboardInterrupt,
            "interrupted",
            "interrupted",
            "Interrupted; continue with --resume.",
        ),
        (ValueError("a bug"), ValueError, "failed", "internal", "ValueError: a bug"),
    ],
)
def test_whatever_ends_a_run_is_raised_and_is_in_its_summary(
    tmp_path: Path, error: BaseException, raised: type[BaseException], status: str, kind: str, message: str
) -> None:
    with pytest.raises(raised):
        run_of(tmp_path, progress=Failing(error))
    summary = summary_of(tmp_path)
    assert (summary["status"], summary["error"]["kind"]) == (status, kind)
    assert summary["error"]["message"].startswith(message)
    assert not is_in_use(tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["/bin/aworld-train", "train", "a b.yaml"], "`aworld-train train 'a b.yaml' --resume`"),
        (["/x/__main__.py", "train", "a", "--resume"], "`aworld-train train a --resume`"),
        (["mine.py"], "`train(resume=True)`"),
    ],
)
def test_who_interrupts_a_run_is_told_its_folder_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], remedy: str
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    progress = Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path, progress=progress)
    assert progress.notes[-1] == f"Interrupted. The run is in {tmp_path / 'run'}; continue with {remedy}."


ALARMS = [{"step": step, "kind": "entropy", "text": "x"} for step in (0, 1, 2)]
EARLIER = {
    "name": "r",
    "seconds": 100.0,
    "alarms": ALARMS,
    "restarts": [{"from_step": 0, "error": "gone"}],
    "val": {"before": {"accuracy": 0.25, "n": 4, "errors": 1}},
}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_resumed_run_goes_on_with_the_figures_of_earlier_attempts(tmp_path: Path, is_done: bool) -> None:
    with pytest.raises(TrainingFailure):
        run_of(tmp_path, "raise SystemExit('Error: out of order')")
    folder, progress = tmp_path / "run", Failing()
    (folder / "summary.json").write_text(json.dumps(EARLIER))
    if is_done:
        (folder / "traces" / "episodes.jsonl").write_text(episode(1))
        (folder / "checkpoints" / "1").mkdir()
        (folder / "checkpoints" / "1" / "whole").touch()
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.1, "val_accuracy": 0.5}\n')
    summary = run_of(tmp_path, "raise SystemExit(1)" if is_done else SCRIPT, resume=True, progress=progress)
    assert (summary.status, summary.restarts) == ("completed", EARLIER["restarts"])
    assert 100 <= summary.seconds < 1000 and summary.alarms == ALARMS[: 1 + is_done]
    assert summary.val["before"] == Validation(0.25, 4, 1)
    is_told = "Nothing is left to train: 1 of 1 steps were done." in progress.notes
    assert is_told is is_done is ("This is a slow machine." not in progress.notes)
    assert is_done is ("It counts." not in progress.notes)
    assert summary.remark == "This is a slow machine."


def test_a_run_that_gets_no_better_ends_early_and_is_completed(tmp_path: Path) -> None:
    lines = [episode(0, validate=True), *(episode(1, validate=each) for each in (False, True))]
    script = f"""
import json, os, pathlib, time
pathlib.Path("traces/episodes.jsonl").write_text({"".join(lines)!r})
pathlib.Path("checkpoints/1").mkdir(parents=True)
pathlib.Path("checkpoints/1/whole").touch()
rows = [{{"step": 0, "figures": {{}}, "validated": True}}, {STEP | {"validated": True}!r}]
pathlib.Path(os.environ["M"]).write_text("".join(json.dumps(row) + chr(10) for row in rows))
time.sleep(600)
"""
    progress = Failing()
    summary = run_of(tmp_path, script, progress=progress, steps=9, early_stop=1)
    reason = "Stopped early after step 1: the accuracy of step 0, 100.0%, was not exceeded in the 1 validations since"
    assert (summary.status, summary.steps_done, summary.error) == ("completed", 1, None)
    assert (summary.stopped_early or "").startswith(reason) and summary.stopped_early in progress.notes
    again = run_of(tmp_path, "raise SystemExit(1)", progress=progress, resume=True, steps=9, early_stop=1)
    assert (
        again.status == "completed" and f"Nothing is left to train: {again.stopped_early}" in progress.notes
    )
    more = run_of(tmp_path, SCRIPT.replace('"step": 1', '"step": 2'), resume=True, steps=2)
    assert (more.status, more.stopped_early, more.steps_done) == ("completed", None, 2)


@pytest.mark.parametrize(
    ("failures", "max_restarts", "starts"),
    [
        ([EnvironmentFailure("it does not start")], 1, 1),
        ([EnvironmentFailure("it is gone"), EnvironmentFailure("it is gone")], 1, 2),
        (
            [TransientFailure("killed"), EnvironmentFailure("it does not start"), TransientFailure("killed")],
            2,
            3,
        ),
    ],
)
def test_an_environment_that_cannot_be_started_the_first_time_is_not_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: list[AworldTrainError],
    max_restarts: int,
    starts: int,
) -> None:
    def start(attempt: Attempt, *_: object) -> None:
        failure = failures[len(started)]
        started.append(failure)
        attempt.began = failure.message != "it does not start"
        raise failure

    started: list[AworldTrainError] = []
    monkeypatch.setattr(run, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(Attempt, "run", start)
    with pytest.raises(type(failures[-1])):
        run_of(tmp_path, max_restarts=max_restarts)
    assert len(started) == starts
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert len(manifest["attempts"]) == starts
    errors = [restart["error"] for restart in summary_of(tmp_path)["restarts"]]
    assert errors == [failure.message for failure in failures[: starts - 1]]


@pytest.mark.parametrize("fails", [False, True])
def test_a_completed_run_has_its_curve_where_that_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool
) -> None:
    def draw(folder: Path) -> None:
        drawn.append(folder)
        if fails:
            raise OSError("no room")

    drawn: list[Path] = []
    monkeypatch.setattr(run, "draw_curve", draw)
    assert run_of(tmp_path).status == "completed"
    assert drawn == [tmp_path / "run"]
    assert ("The learning curve could not be drawn: no room" in capsys.readouterr().err) is fails


def test_a_summary_that_cannot_be_written_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RunSummary, "write", write)
    with pytest.raises(DiskFull):
        run_of(tmp_path)
    printed = capsys.readouterr().err
    assert "summary.json could not be written ([Errno 28] full): {'name': 'r', 'status': 'failed'" in printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_ends_a_job_is_an_interrupt_while_it_runs(number: signal.Signals) -> None:
    outside: list[int] = []
    before = signal.signal(number, lambda received, _: outside.append(received))
    try:
        with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
            signal.raise_signal(number)
        assert outside == []
        signal.raise_signal(number)
        assert outside == [number], "what was there before is there again"
    finally:
        signal.signal(number, before)


def test_a_run_goes_on_without_its_terminal_where_that_was_asked_for() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminate_as_interrupt():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_thread_leaves_signals_as_they_are() -> None:
    handlers: list[Any] = []

    def run() -> None:
        with terminate_as_interrupt():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]


# Its parts


def test_the_record_has_each_step_once_and_counts_what_was_played(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    log = folder.path / "logs" / "m.jsonl"
    summary = RunSummary("r", steps_planned=2)
    record = RunMetrics(folder, summary, log, 0)
    append(folder.episodes, *[episode(0, validate=True, correct=c) for c in (1.0, 0.0, 0.0, 0.0)])
    append(log, validated(0))
    append(folder.episodes, episode(1), episode(1, correct=None, outcome="environment", cause="gone"))
    append(log, trained(1), trained(2))
    append(folder.episodes, episode(2, validate=True, tool_calls=0), episode(2, validate=True, tool_calls=2))
    assert record.refresh(3.0)
    append(log, validated(2))
    assert record.refresh(4.0)
    assert not record.refresh(5.0)
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0]["val_accuracy"] == 0.25
    assert rows[1]["outcomes"] == {"answered": 1, "environment": 1}
    assert (summary.steps_done, summary.episodes, summary.trained_episodes) == (2, 2, 1)
    assert summary.environment_losses == 1
    assert (summary.val["before"].accuracy, summary.val["before"].n) == (0.25, 4)
    assert (summary.val["after"].accuracy, summary.val["after"].n) == (1.0, 2)
    assert summary.correct_with_tool == 0.5
    assert record.worst_cause() == "gone"


def test_an_episode_that_is_played_again_counts_once_and_its_loss_is_counted(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    summary = RunSummary("r")
    record = RunMetrics(folder, summary, folder.path / "m", 0)
    append(
        folder.episodes,
        episode(1, correct=None, outcome="environment", retried=True, cause="gone"),
        episode(1),
    )
    record.refresh(1.0)
    assert (summary.episodes, summary.trained_episodes, summary.environment_losses) == (1, 1, 1)


def test_what_came_after_the_checkpoint_is_done_again_and_counted_once(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    first = RunMetrics(folder, RunSummary("r"), folder.path / "m1", 0)
    append(folder.episodes, episode(0, validate=True), episode(1), episode(2))
    append(folder.path / "m1", validated(0), trained(1), trained(2))
    first.refresh(1.0)
    summary = RunSummary("r")
    second = RunMetrics(folder, summary, folder.path / "m2", 1)
    append(folder.episodes, episode(2), episode(2))
    append(folder.path / "m2", trained(2))
    second.refresh(1.0)
    rows = [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()]
    assert rows == [0, 1, 2]
    assert summary.episodes == 3
    assert summary.val["before"].n == 1


def test_a_half_written_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    record = RunMetrics(folder, RunSummary("r"), folder.path / "m", 0)
    line = episode(1)
    append(folder.episodes, line[:20])
    assert not record.refresh(1.0)
    append(folder.episodes, line[20:])
    assert record.refresh(1.0)
    assert record.summary.episodes == 1


def test_metrics_hold_no_number_that_json_does_not_know(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    record = RunMetrics(folder, RunSummary("r"), folder.path / "m", 0)
    append(folder.path / "m", trained(1, **{"x": float("nan")}))
    record.refresh(1.0)
    assert "NaN" not in folder.metrics.read_text()


TREE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"])
print(child.pid, flush=True)
time.sleep({seconds})
sys.exit({code})
"""


def guarded(tmp_path: Path, *, seconds: float, code: int, stop: bool = False) -> tuple[Any, int]:
    """Run TREE and wait for its end; with `stop`, it is stopped as soon as its child is there."""
    log = tmp_path / "log"
    end = run_guarded(
        [sys.executable, "-c", TREE.format(seconds=seconds, code=code)],
        environment=os.environ,
        cwd=tmp_path,
        log=log,
        watch=lambda: "enough" if stop and log.read_text().endswith("\n") else None,
        every=0.1,
    )
    return end, int(log.read_text().split()[0])


def test_a_guarded_command_ends_with_its_exit_code_and_takes_its_children_along(tmp_path: Path) -> None:
    end, child = guarded(tmp_path, seconds=0.2, code=7)
    assert (end.code, end.stopped_because) == (7, None)
    assert not psutil.pid_exists(child)


def test_a_watched_command_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    end, child = guarded(tmp_path, seconds=600, code=0, stop=True)
    assert end.stopped_because == "enough"
    assert not psutil.pid_exists(child)


def test_what_a_guarded_command_prints_is_masked_and_its_owners(tmp_path: Path) -> None:
    remember("s3cret-value", "${oc.env:KEY}")
    source = (
        "import sys, time\n"
        "for part in ('a s3cret', '-value\\n', 'no end: s3cret-value'):\n"
        "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.2)\n"
        "sys.stderr.buffer.write(b'\\xff ' + b's3cret-value')\n"
    )
    log = tmp_path / "log"
    end = run_guarded(
        [sys.executable, "-c", source],
        environment=os.environ,
        cwd=tmp_path,
        log=log,
        watch=lambda: None,
        every=0.1,
    )
    assert end.code == 0
    assert log.read_bytes() == b"a ${oc.env:KEY}\nno end: ${oc.env:KEY}\xff ${oc.env:KEY}"
    assert log.stat().st_mode & 0o777 == 0o600


def test_plain_progress_is_a_line_per_milestone(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LineProgress(Console(file=sys.stdout, width=40, force_terminal=False))
    moment = Status(
        "training",
        2,
        4,
        0,
        16,
        reward=0.5,
        accuracy=0.25,
        tool_calls=9,
        tokens_per_second=310.4,
        seconds_left=61,
    )
    progress.update(moment, milestone=True)
    progress.update(moment, milestone=False)
    assert capsys.readouterr().out == (
        "step 2/4 · reward 0.500 · accuracy 0.250 · 9 tool calls · 310 tokens/s · 1:01 left\n"
    )


def test_the_curve_is_drawn_from_the_metrics(tmp_path: Path) -> None:
    rows = [{"step": 0, "val_accuracy": 0.2, "val_n": 8}]
    rows += [{"step": s, "reward": 0.1 * s, "tool_calls": s, "episodes": 4} for s in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture = draw_curve(tmp_path)
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "metrics.jsonl").write_text("")
    assert draw_curve(tmp_path) is None


def test_a_resumed_run_keeps_the_first_validation_of_its_summary(tmp_path: Path) -> None:
    earlier, resumed = RunSummary("r"), RunSummary("r", run_dir=str(tmp_path))
    earlier.val["before"] = Validation(accuracy=0.25, n=4, errors=1)
    earlier.write(tmp_path)
    resumed.take_up(0)
    assert resumed.val == earlier.val
    (tmp_path / "summary.json").write_text('{"val": {"before": {"other": 1}}}')
    resumed = RunSummary("r", run_dir=str(tmp_path))
    resumed.take_up(0)
    assert resumed.val["before"] == Validation()
