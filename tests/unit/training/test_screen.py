"""The live screen of a run, on a real pseudo-terminal: what a person sees there, at any size and at every end."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aworld_train.training.progress import Status
from aworld_train.training.screen import screen
from tests.locations import REPOSITORY
from tests.replayed_run import RECORDED
from tests.terminal import Terminal

COMMAND = [sys.executable, "-m", "tests.replayed_run"]
# 8 of the validation before training, 16 of each step, 8 of the validation after step 2, 9 of step 3.
MOMENT = (8 + 16 + 16 + 8 + 9, 3)
SIZES = [(80, 24), (120, 40), (200, 60), (60, 16), (40, 12), (30, 8), (20, 5), (10, 2)]
Show = Callable[..., Terminal]


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Show]:
    """Starts the replay of a recorded run at a moment, in a terminal."""
    terminals: list[Terminal] = []

    def start(columns: int = 80, lines: int = 24, *notes: str, **environment: str) -> Terminal:
        go_on(tmp_path, *MOMENT, *notes)
        variables = {"PYTHONPATH": str(REPOSITORY), **environment}
        terminal = Terminal([*COMMAND, str(tmp_path)], columns, lines, environment=variables, cwd=tmp_path)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        with terminal:
            pass


def go_on(folder: Path, episodes: int, rows: int, *notes: str) -> None:
    partial = folder / "moment.partial"
    partial.write_text("\n".join([f"{episodes} {rows}", *notes]))
    partial.replace(folder / "moment")


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


def figure(text: str, label: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line.removeprefix(label).strip()


def test_the_screen_has_the_figures_of_the_records(show: Show) -> None:
    text = show().wait_for("staleness")
    rows = [row["data"] for row in recorded("verl-metrics.jsonl")[: MOMENT[1]]]
    episodes = recorded("episodes.jsonl")[: MOMENT[0]]
    current = [line for line in episodes if line["step"] == 3]
    rewards = [row["critic/score/mean"] for row in rows[1:]]
    head = text.splitlines()[0]
    assert re.fullmatch(r"recorded  step 2 of 4 +0:\d\d elapsed · about \d+:\d\d left", head)
    assert text.splitlines()[1] == "━" * 40 + "─" * 40
    assert figure(text, "phase") == "start  validation  ▶ rollout  update   update actor 0:03"
    assert figure(text, "episodes") == "9 of 16 in step 3"
    assert figure(text, "reward").startswith(f"{rewards[-1]:.3f}  ")
    assert figure(text, "reward").endswith(f"{min(rewards):.3f} to {max(rewards):.3f}")
    validated = [line for line in episodes if line["validate"] and line["step"] == 2]
    accuracy = sum(line["scores"]["acc"] for line in validated) / len(validated)
    assert figure(text, "accuracy").startswith(f"{accuracy:.3f}")
    outcomes = [line["outcome"] for line in current]
    counts = {name: f"{name} {outcomes.count(name)}" for name in {*outcomes}}
    assert len(counts) > 1
    assert set(figure(text, "outcomes").removesuffix("  (step 3)").split(" · ")) == set(counts.values())
    calls, errors = (sum(line[key] for line in episodes) for key in ("tool_calls", "tool_errors"))
    mean = sum(line["tool_seconds"] for line in current) / sum(line["tool_calls"] for line in current)
    assert figure(text, "tools") == f"{calls} calls · {errors} errors · mean {mean * 1000:.0f} ms"
    assert figure(text, "tokens/s") == f"{rows[2]['perf/throughput']:,.0f}"
    assert figure(text, "staleness") == "mean 0.00 · max 0 steps"


def test_what_updates_were_made_of_is_one_line() -> None:
    counts = {"updates": 4, "clipped_updates": 1, "groups": 8, "equal_groups": 2, "rejected_episodes": 3}
    status = Status("training", 2, 4, 0, 8, updates=counts)
    text = "\n".join(line.plain for line in screen(status, [], 80, 24))
    expected = "4, 1 clipped · 8 groups, 2 of equal rewards · 3 episodes rejected"
    assert figure(text, "updates") == expected
    text = "\n".join(line.plain for line in screen(replace(status, updates={"updates": 4}), [], 80, 24))
    assert figure(text, "updates") == "4"


def test_what_was_left_out_for_too_old_weights_stands_beside_the_staleness() -> None:
    lost = {"stale_episodes": 3, "stale_tokens": 1200, "lost_samplers": 1}
    status = Status("training", 2, 4, 0, 8, staleness=0.5, max_staleness=2, lost=lost)
    text = "\n".join(line.plain for line in screen(status, [], 100, 24))
    expected = "mean 0.50 · max 2 steps · 3 episodes too old (1,200 tokens) · samplers replaced: 1"
    assert figure(text, "staleness") == expected


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_it_fits_and_the_most_important_stays(columns: int, lines: int, show: Show) -> None:
    terminal = show(columns, lines)
    text = terminal.wait(lambda terminal: "2/4" in terminal.text or "2 of 4" in terminal.text)
    assert terminal.is_full_screen
    assert not terminal.has_cursor
    # A line that was wrapped would push the first one out.
    assert re.match(r"(recorded  )?step 2", text)
    if lines >= 5:
        assert "\nphase" in text
        assert "\nreward" in text
    if columns >= 40:
        assert " left" in text.splitlines()[0]


def test_another_size_leaves_nothing_of_the_last_one(show: Show, tmp_path: Path) -> None:
    terminal = show()
    terminal.wait_for("staleness")
    for columns, lines in ((50, 9), (120, 40), (33, 30), (80, 24)):
        terminal.resize(columns, lines)
        (tmp_path / "other").mkdir(exist_ok=True)
        go_on(tmp_path / "other", *MOMENT)
        command = [*COMMAND, str(tmp_path / "other")]
        variables = {"PYTHONPATH": str(REPOSITORY)}
        with Terminal(command, columns, lines, environment=variables, cwd=tmp_path) as fresh:
            expected = still(fresh.wait_for("reward"))
            terminal.wait(lambda terminal, expected=expected: still(terminal.text) == expected)
        subprocess.run(["rm", "-r", str(tmp_path / "other")], check=True)


def still(text: str) -> str:
    """The screen without what the clock changes."""
    return re.sub(r"\d+:\d\d", "0:00", text)


def test_the_colours_are_left_out_where_none_are_asked_for(show: Show) -> None:
    terminal = show(NO_COLOR="1")
    terminal.wait_for("staleness")
    assert terminal.colours == {"default"}
    assert terminal.is_full_screen


def test_it_has_colours_elsewhere(show: Show) -> None:
    terminal = show()
    terminal.wait_for("staleness")
    assert {"default", "green"} <= terminal.colours


def test_messages_are_shown_and_printed_when_the_run_has_ended(show: Show, tmp_path: Path) -> None:
    terminal = show(80, 24, "A note.", "stderr: of a library", "\x1b[2J\x1b[Hno \x07harm")
    text = terminal.wait_for("no  harm")
    assert text.splitlines()[-4:-1] == ["A note.", "stderr: of a library", " [2J [Hno  harm"]
    assert text.startswith("recorded  step 2 of 4")
    go_on(tmp_path, 72, 4, "A note.", "stderr: of a library", "\x1b[2J\x1b[Hno \x07harm")
    terminal.wait_for("step 3/4 ")
    (tmp_path / "moment").write_text("")
    assert terminal.end() == 0
    assert_restored(terminal)
    text = terminal.text
    assert text.startswith("A note.\nstderr: of a library\n [2J [Hno  harm\nstep 2/4 · reward")
    assert "\nstep 3/4 · reward" in text
    assert text.endswith("the run has ended")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("\x03", "KeyboardInterrupt"),
        ("terminate", "KeyboardInterrupt"),
        ("fail", "aworld_train.errors.TrainingFail"),
    ],
)
def test_the_terminal_is_as_before_however_the_run_ends(
    how: str, error: str, show: Show, tmp_path: Path
) -> None:
    terminal = show(80, 40)
    terminal.wait_for("staleness")
    if how == "\x03":
        terminal.type(how)
    elif how == "terminate":
        terminal.process.terminate()
    else:
        (tmp_path / "moment").write_text("fail")
    assert terminal.end() != 0
    assert_restored(terminal)
    assert terminal.text.startswith("step 2/4 · reward")
    assert terminal.text.splitlines()[-1].startswith(error)


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again(tmp_path: Path) -> None:
    go_on(tmp_path, *MOMENT)
    shell = ["bash", "--norc", "--noprofile", "-i"]
    variables = {"PYTHONPATH": str(REPOSITORY), "PS1": "shell> "}
    with Terminal(shell, environment=variables, cwd=tmp_path) as terminal:
        terminal.wait_for("shell>")
        terminal.type(f"{shlex.join([*COMMAND, str(tmp_path)])}\n")
        terminal.wait_for("staleness")
        assert terminal.is_full_screen
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        assert_restored(terminal)
        assert "step 2/4 · reward" in terminal.text
        terminal.type("fg\n")
        terminal.wait(lambda terminal: terminal.is_full_screen and "staleness" in terminal.text)
        terminal.type("\x1a")
        terminal.wait(lambda terminal: not terminal.is_full_screen and terminal.text.count("Stopped") == 2)
        # In the background it must not draw over what the user does; lines are printed.
        terminal.type("bg\n")
        go_on(tmp_path, 72, 4)
        terminal.wait_for("step 3/4 · reward")
        assert_restored(terminal)
        terminal.type("fg\n")
        terminal.wait(lambda terminal: terminal.is_full_screen and "step 3 of 4" in terminal.text)
        (tmp_path / "moment").write_text("")
        terminal.wait_for("the run has ended")
        assert_restored(terminal)


def assert_restored(terminal: Terminal) -> None:
    assert not terminal.is_full_screen
    assert terminal.has_cursor


def test_a_run_goes_on_when_its_terminal_is_gone(tmp_path: Path) -> None:
    go_on(tmp_path, *MOMENT)
    script = f"trap '' HUP; {shlex.join([*COMMAND, str(tmp_path)])} > out; echo $? > ended"
    variables = {"PYTHONPATH": str(REPOSITORY)}
    with Terminal(["bash", "-c", script], environment=variables, cwd=tmp_path) as terminal:
        terminal.wait_for("staleness")
        terminal.hang_up()
        go_on(tmp_path, 72, 4, "A note to nobody.")
        wait_for(lambda: len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 4)
        (tmp_path / "moment").write_text("")
        terminal.process.wait(timeout=120)
    assert (tmp_path / "out").read_text() == "the run has ended\n"
    assert (tmp_path / "ended").read_text() == "0\n"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}])
def test_off_a_terminal_there_are_lines(variables: dict[str, str], tmp_path: Path) -> None:
    go_on(tmp_path, *MOMENT)
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path)],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        (tmp_path / "moment").write_text("")
        rest = process.stderr.read()
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
    assert re.fullmatch(
        r"step 2/4 · reward \d\.\d+ · accuracy .* left\n", re.sub(r"\x1b\[[0-9;]*m", "", line)
    )
    assert "\x1b[?" not in line + rest
    assert "phase" not in rest


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(show: Show) -> None:
    terminal = show(TERM="dumb")
    terminal.wait_for("step 2/4 · reward")
    assert not terminal.is_full_screen
    assert b"\x1b" not in terminal.output


def test_an_alarm_is_shown_and_stays() -> None:
    status = Status("training", 3, 9, 4, 16, alarms=("step 1: first", "step 2: the entropy is low"))
    for height in (24, 4):
        lines = [line.plain for line in screen(status, [], 80, height)]
        assert "ALARM     step 2: the entropy is low (2 alarms)" in lines


def test_figures_of_several_gpus_say_so() -> None:
    status = Status("training", 3, 9, 4, 16, tokens_per_second=1234.5, gpus=8)
    assert "tokens/s  1,234 on each GPU or process" in [line.plain for line in screen(status, [], 80, 24)]


def test_the_documentation_explains_each_line_that_there_is() -> None:
    status = Status(
        "training",
        7,
        10,
        3,
        16,
        tokens_per_second=1.0,
        name="quickstart",
        rewards=(0.5, 0.25),
        accuracies=(0.5, 0.75),
        teacher_kls=(0.5, 0.25),
        outcomes={"answered": 3},
        tool_calls=2,
        staleness=0.0,
        alarms=("step 1: the entropy is low",),
    )
    shown = [line.plain.split()[0] for line in screen(status, [], 80, 24)][2:]
    page = (REPOSITORY / "docs/how-to/watching.md").read_text()
    assert re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE) == [*shown]
    picture = re.search(r"```text[^\n]*\n(.*?)```", page, re.DOTALL)
    assert picture is not None
    lines = picture[1].splitlines()
    without_teacher = [label for label in shown[:-1] if label != "teacher"]
    assert [line.split()[0] for line in lines[2 : 2 + len(without_teacher)]] == without_teacher
    assert max(map(len, lines)) == 80


def test_another_terminal_watches_the_run_until_it_ends(tmp_path: Path) -> None:
    go_on(tmp_path, *MOMENT)
    variables = {"PYTHONPATH": str(REPOSITORY)}
    watch = [sys.executable, "-m", "aworld_train", "runs", "watch", str(tmp_path / "run")]
    with subprocess.Popen(
        [*COMMAND, str(tmp_path)],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        try:
            wait_for((tmp_path / "run" / "logs" / "status.json").is_file)
            with Terminal(watch, environment=variables, cwd=tmp_path) as terminal:
                terminal.wait_for("staleness")
                assert terminal.is_full_screen and figure(terminal.text, "episodes") == "9 of 16 in step 3"
                go_on(tmp_path, 72, 4)
                terminal.wait_for("8 of 16 in step 4")
                (tmp_path / "moment").write_text("")
                assert (terminal.end(), run.wait(20)) == (0, 0)
                assert_restored(terminal)
                assert "step 3/4 · reward" in terminal.text
                assert "run is killed. See `aworld-train runs show" in terminal.text
        finally:
            run.kill()
