"""The part of a run for which everything waits is named, and no other."""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from aworld_train import masking, waits
from aworld_train.training.process import run_guarded
from aworld_train.training.watchdog import StallWatch, find_stuck
from aworld_train.waits import ProcessWaits, Wait

SILENT = 600.0


YOUNG = Wait("model", "", 3.0)
UPDATING = (Wait("phase", "step", 700.0), Wait("phase", "update_actor", 610.0))


def process(
    role: str, *waits: Wait, newest: float = 600.0, blocked: float = 0.0, age: float = 1.0
) -> ProcessWaits:
    return ProcessWaits(role, "node", 7, waits, newest, blocked, age)


EPISODE, IDLE = Wait("episode", "", 650.0), process("episodes")
TRAINER = process("trainer", Wait("phase", "step", 650.0), Wait("phase", "gen", 640.0))


def command_line(process: psutil.Process) -> list[str]:
    """Empty where it has just ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize(
    ("part", "words", "processes"),
    [
        ("engine", "for 605 seconds", [process("episodes", EPISODE, Wait("model", "", 605.0)), TRAINER]),
        ("tool", "(browse)", [process("episodes", EPISODE, Wait("tool", "browse", 605.0)), TRAINER]),
        ("reward", "(math)", [process("episodes", Wait("score", "math", 605.0)), TRAINER]),
        ("agent", "waits for a call", [process("episodes", EPISODE), TRAINER]),
        ("agent", "does not await", [process("episodes", EPISODE, Wait("model", "", 605.0), blocked=610.0), TRAINER]),
        ("trainer", "update_actor", [IDLE, process("trainer", *UPDATING)]),
        ("trainer", "process 7 on node", [IDLE, process("trainer", Wait("phase", "gen", 5.0), age=604.0)]),
        ("trainer", "between two steps", [IDLE, process("trainer")]),
        ("episodes", "process 7 on node", [process("episodes", EPISODE, age=604.0), TRAINER]),
        ("nothing", "none of their calls is late", [process("episodes", EPISODE, YOUNG, newest=1.0), TRAINER]),
        ("nothing", "none of their calls is late", [process("episodes", EPISODE, newest=1.0), TRAINER]),
        ("unknown", "has said yet", []),
    ],
)  # fmt: skip
def test_the_part_that_is_stuck_is_named(part: str, words: str, processes: list[ProcessWaits]) -> None:
    stuck = find_stuck(processes, SILENT)
    assert stuck.part == part
    assert words in stuck.text


def test_of_several_the_one_that_is_waited_for_longest_is_named_with_the_others() -> None:
    both = process("episodes", Wait("model", "", 400.0), Wait("tool", "browse", 610.0))
    stuck = find_stuck([both, TRAINER], SILENT)
    assert stuck.part == "tool"
    assert "others for the engine" in stuck.text


def test_an_environment_that_does_not_answer_is_named_first() -> None:
    waiting = process("episodes", EPISODE, Wait("tool", "browse", 605.0))
    assert find_stuck([waiting], SILENT, environment_answers=False).part == "environment"


def test_another_phase_of_the_trainer_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    phases: list[ProcessWaits] = []
    monkeypatch.setattr(waits, "read", lambda folder: phases)
    watch = StallWatch(60.0, tmp_path)
    for number in range(5):
        now += 50.0
        phases[:] = [process("trainer", Wait("phase", f"phase {number}", 1.0))]
        assert watch.reason("") is None
    now += 61.0
    assert "the trainer was in phase 4" in (watch.reason("") or "")


def test_a_run_that_has_lost_a_process_and_does_not_end_by_itself_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    loss = "the queue's storage died: it was killed"
    monkeypatch.setattr(waits, "read", lambda folder: [replace(process("trainer"), loss=loss)])
    watch = StallWatch(600.0, tmp_path)
    now += 3.0
    assert watch.reason("It was in training.") is None
    now += 11.0
    assert watch.reason("It was in training.") == (
        "The queue's storage died: it was killed. It was in training."
    )
    assert watch.stuck is not None and watch.stuck.transient


@pytest.mark.skipif(sys.platform != "linux", reason="py-spy reads processes of this user on Linux only")
def test_a_stall_leaves_masked_stacks_of_the_runs_own_processes_and_names_the_stopped(tmp_path: Path) -> None:
    masking.remember("a_secret_function", "${oc.env:SECRET}")
    program = (
        "import time\ndef a_secret_function():\n    print('inside', flush=True)\n    time.sleep(600)\n"
        "a_secret_function()\n"
    )
    (tmp_path / "logs").mkdir()
    other = psutil.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    watch = StallWatch(0.0, tmp_path)
    reasons: list[str] = []

    def stop() -> str | None:
        # Its supervisor has the program among its arguments too.
        children = psutil.Process().children(recursive=True)
        programs = [child for child in children if command_line(child)[1:] == ["-c", program]]
        if not programs or "inside" not in (tmp_path / "logs" / "x.log").read_text():
            return None
        programs[0].send_signal(signal.SIGSTOP)
        while programs[0].status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        reasons.append(watch.reason("It was in training.") or "")
        return reasons[0]

    try:
        run_guarded(
            [sys.executable, "-c", program], environment={}, cwd=tmp_path, log=tmp_path / "logs" / "x.log",
            watch=stop,
        )  # fmt: skip
    finally:
        other.kill()
        other.wait()
    (file,) = (tmp_path / "logs").glob("stacks-*.txt")
    assert str(file) in reasons[0] and "Stopped by a signal: " in reasons[0]
    stacks = file.read_text()
    assert "import time" not in stacks  # the command line
    assert "${oc.env:SECRET}" in stacks and "a_secret_function" not in stacks
    assert f"process {other.pid})" not in stacks
    assert file.stat().st_mode & 0o077 == 0
