"""``aworld-train env`` where nothing is up: what it prints, and which errors it raises."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from aworld_train.cli import console, env
from aworld_train.cli.env import app
from aworld_train.env import containers, interpreter
from aworld_train.env.backend import Remark
from aworld_train.env.directory import EnvDirectory
from aworld_train.errors import EnvironmentFailure, UsageError


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path))
    # What is up on an engine of this machine is no part of these tests.
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    containers._client.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_what_a_tool_wrote_into_the_log_does_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = "worker-0 | \x1b]0;owned\x07 \x1b[2J\x9b31m\rgateway-0 | all is well\tä"
    monkeypatch.setattr(env, "_record", lambda name: None)
    monkeypatch.setattr(sys.modules["aworld_train.env.status"], "log_lines", lambda *_: iter([written]))
    assert run("logs").stdout == (
        "worker-0 | \\x1b]0;owned\\x07 \\x1b[2J\\x9b31m\\rgateway-0 | all is well\tä\n"
    )


def test_a_folder_of_a_client_s_servers_is_made_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, folder = tmp_path / "servers.json", tmp_path / "tools"
    servers = {"time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": "secret"}}}
    file.write_text(json.dumps({"mcpServers": servers}))
    locked: list[Path] = []

    def lock(directory: EnvDirectory, _: object) -> None:
        locked.append(directory.path)
        if len(locked) == 1:
            raise EnvironmentFailure("the registry does not answer")

    monkeypatch.setattr(interpreter, "lock_packages", lock)
    assert isinstance(run("init", str(folder), "--from", str(file)).exception, EnvironmentFailure)
    assert not folder.exists()
    made = run("init", str(folder), "--from", str(file))
    assert made.exit_code == 0 and "Give the values of TIME_KEY with --env-file" in made.stderr
    assert "secret" not in "".join(each.read_text() for each in folder.rglob("*") if each.is_file())
    assert isinstance(run("init", str(folder), "--from", str(file)).exception, UsageError)
    assert (folder / "servers.yaml").is_file() and locked == [folder, folder]


def test_list_shows_the_calculator() -> None:
    assert "calculator-mcp-server" in run("list").stdout
    listed = json.loads(run("list", "--json").stdout)["directories"]
    assert {"name", "description", "servers", "path"} == set(listed[0])
    calculator = next(one for one in listed if one["name"] == "calculator-mcp-server")
    assert calculator["servers"] == ["calculator"]


def test_a_terminal_keeps_remarks_whole_and_steps_while_they_last(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=40))
    with env._progress() as report_progress:
        report_progress(Remark("Warning: " + 8 * "as plain processes, "))
        report_progress("Starting the workers.")
    assert 8 * "as plain processes, " in screen.getvalue()
    assert screen.getvalue().rstrip().endswith("\x1b[2K")


def test_status_of_nothing_is_an_empty_list_and_no_error() -> None:
    result = run("status", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"environments": []})
    result = run("status")
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["down", "--all"]])
def test_an_engine_that_could_not_be_asked_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    unasked = f"No Docker engine answers at unix://{tmp_path}/no-engine.sock"
    assert unasked in run(*command).stderr
    assert unasked in str(run("status", "tools").exception)
    assert unasked in str(run("logs").exception)
    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    assert unasked not in run("status").stderr and "tools' is up. Nothing is up." in str(
        env._unknown("tools")
    )


def test_down_of_what_is_not_up_is_no_error() -> None:
    result = run("down", "tools", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {"environments": [{"name": "tools", "stopped": False}]},
    )
    assert json.loads(run("down", "--all", "--json").stdout) == {"environments": []}


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        (["status", "tools"], EnvironmentFailure, "No environment 'tools' is up"),
        (["logs", "tools"], EnvironmentFailure, "No environment 'tools' is up"),
        (["config", "tools"], EnvironmentFailure, "No environment 'tools' is up"),
        (["config"], EnvironmentFailure, "No environment is up"),
        (["down"], EnvironmentFailure, "No environment is up"),
        (["test", "tools"], EnvironmentFailure, "No environment 'tools' is up"),
        (["token"], EnvironmentFailure, "No environment is up"),
        (["down", "tools", "--all"], UsageError, "only one of them"),
        (["down", "--all", "--orphans"], UsageError, "only one of them"),
        (["token", "tools", "--ttl", "soon"], UsageError, "'soon' is not a span of time"),
        (["up", "--docker-dir", "calculator"], UsageError, "Did you mean 'calculator-mcp-server'"),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--backend", "podman"],
            UsageError,
            "Unknown backend",
        ),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--port", "65536"],
            UsageError,
            "65536 is not a port",
        ),
        (["up", "--docker-dir", "calculator-mcp-server", "--name", "a/b"], UsageError, "cannot be the name"),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--backend", "docker"],
            EnvironmentFailure,
            "use --backend process",
        ),
        (
            ["build", "--docker-dir", "calculator-mcp-server"],
            EnvironmentFailure,
            "No Docker engine answers at",
        ),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--backend", "process", "--vnc"],
            UsageError,
            "no desktop for --vnc",
        ),
        (["up", "--docker-dir", "calculator-mcp-server", "--workers", "0"], UsageError, "--workers is 0"),
        (["up", "--docker-dir", "calculator-mcp-server", "--cpus", "0"], UsageError, "--cpus is 0"),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--memory", "lots"],
            UsageError,
            "not an amount of memory",
        ),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--ttl", "0d"],
            UsageError,
            "'0d' is not a span of time",
        ),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--servers", "calculater"],
            UsageError,
            "Did you mean 'calculator'",
        ),
        (
            ["build", "--docker-dir", "calculator-mcp-server", "--servers", "calculater"],
            UsageError,
            "Did you mean 'calculator'",
        ),
        (
            ["up", "--docker-dir", "calculator-mcp-server", "--env-file", "/no/such/file"],
            UsageError,
            "No such file: /no/such/file (--env-file)",
        ),
        (
            [
                "up",
                "--docker-dir",
                "calculator-mcp-server",
                "--backend",
                "process",
                "--data",
                "/no/such/folder",
            ],
            UsageError,
            "/no/such/folder (--data) does not exist",
        ),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_a_typed_error(
    arguments: list[str], error: type[Exception], reason: str
) -> None:
    result = run(*arguments)
    assert type(result.exception) is error
    assert reason in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command", ["up", "build", "down", "status", "test", "list", "logs", "config", "token"]
)
def test_the_help_of_each_command_has_an_example(command: str) -> None:
    assert f"aworld-train env {command}" in run(command, "--help").stdout
