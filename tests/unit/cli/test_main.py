"""The list of commands, which is written down where it is printed, and the commands themselves."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.cli.main import COMMANDS, LazyCommand


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "aworld_train", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_listed_command_has_the_name_and_the_first_lines_of_the_one_that_is_called(
    command: LazyCommand,
) -> None:
    loaded = command.load()
    first_paragraph = inspect.cleandoc(loaded.help).split("\n\n")[0]
    assert (command.name, command.help) == (loaded.name, " ".join(first_paragraph.split()))


@pytest.mark.parametrize("below", ["compare", "report"])
def test_a_command_below_another_has_its_own_help(below: str) -> None:
    done = run("eval", below, "--help")
    assert done.returncode == 0
    assert f"eval {below}" in " ".join(done.stdout.split())


def test_help_lists_every_command_with_its_whole_line() -> None:
    done = run("--help")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert all(f" {command.name} {command.help}" in words for command in COMMANDS)


def test_help_lists_the_options() -> None:
    assert all(option in run("-h").stdout for option in ("--version", "--debug", "-h, --help"))


def test_nothing_given_prints_the_help_and_counts_as_misuse() -> None:
    done, help_page = run(), run("--help")
    assert (done.returncode, done.stdout, done.stderr) == (2, help_page.stdout, "")


def test_a_group_without_a_command_prints_its_help_once() -> None:
    done = run("env")
    assert (done.returncode, done.stdout.count("Usage:"), done.stderr) == (2, 1, "")


def test_help_of_a_command_is_the_command_s_own() -> None:
    help_page = run("train", "-h").stdout
    assert all(text in help_page for text in ("RUNS/<name>", "--dry-run", "recipes/quickstart.yaml --resume"))


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("aworld-train runs sh", ["show"]),
        ("aworld-train runs show --runs RUNS long", ["long-a", "long-b"]),
        ("aworld-train eval compare --runs RUNS long-a s", ["short"]),
        ("aworld-train eval comp", ["compare"]),
        ("aworld-train train quickstart-s", ["quickstart-sft"]),
    ],
)
def test_a_shell_completes_commands_and_names_of_runs_and_recipes(
    tmp_path: Path, line: str, completed: list[str]
) -> None:
    for name in ("long-a", "long-b", "short"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").touch()
    words = line.replace("RUNS", str(tmp_path))
    request = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = "import sys; sys.argv[0] = 'aworld-train'; from aworld_train.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **request, "_AWORLD_TRAIN_COMPLETE": "complete_bash"},
    )
    assert done.stdout.split() == completed


@pytest.mark.parametrize(("arguments", "nearest"), [(["trian"], "'train'"), (["env", "upp"], "'up'")])
def test_an_unknown_command_gets_the_nearest_one(arguments: list[str], nearest: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: No such command '{arguments[-1]}'. Did you mean {nearest}?\n"


def test_files_and_paths_are_read_as_utf8_in_a_locale_without_it(tmp_path: Path) -> None:
    (folder := tmp_path / "Übung").mkdir()
    (folder / "r.yaml").write_text("name: r\nmodel: {path: wörtlich-模型}\n", encoding="utf-8")
    command = [sys.executable, "-m", "aworld_train", "recipe", "show", str(folder / "r.yaml")]
    locale = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=locale)
    assert (done.returncode, "wörtlich-模型" in done.stdout) == (0, True), done.stderr


def test_a_current_folder_that_was_removed_is_said(tmp_path: Path) -> None:
    script = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, sys.argv[1:])"
    command = [
        sys.executable,
        "-c",
        script,
        sys.executable,
        "-m",
        "aworld_train",
        "train",
        "quickstart",
        "--dry-run",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: The current folder was removed.")


def test_debug_shows_the_traceback_of_an_error() -> None:
    quiet, debug = run("recipe", "check", "no-such"), run("--debug", "recipe", "check", "no-such")
    assert (quiet.returncode, debug.returncode) == (2, 2)
    assert "Traceback" not in quiet.stderr
    assert debug.stderr.startswith(quiet.stderr)
    assert "Traceback" in debug.stderr
