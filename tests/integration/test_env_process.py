"""Tool environments as processes: started, found, lost and stopped for real, and nothing left of them afterwards.

What sessions get is in ``test_env_sessions``, for both backends.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from mcp import McpError
from rich.console import Console
from typer.testing import CliRunner

from aworld_train.cli import console
from aworld_train.cli.env import app
from aworld_train.cli.recipe import tools_remark
from aworld_train.env import (
    EnvConnection,
    down,
    down_orphans,
    find,
    health,
    lifecycle,
    orphans,
    probe,
    registry,
    status,
)
from aworld_train.env import up as up_anywhere
from aworld_train.env.directory import find_directory
from aworld_train.env.health import examine
from aworld_train.env.record import Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.model.tiny import SHIPPED
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.recipe import load
from tests import warm
from tests.environments import HEADERS, HELLO, ODD, call, eventually, make_slow_directory, session

CALCULATOR = "calculator-mcp-server"

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def up(directory: "str | Path", **options: Any) -> EnvConnection:
    return up_anywhere(directory, backend="process", **options)


@pytest.fixture(scope="module", autouse=True)
def temporary() -> Iterator[None]:
    """A place for temporary files that others, who have environments too, do not use; sockets need a short path."""
    with (
        tempfile.TemporaryDirectory(prefix="aw-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="module")
def calculator() -> Iterator[EnvConnection]:
    """An environment that the tests of this module use and do not change."""
    yield up(CALCULATOR, name="shared")
    down("shared")


@pytest.fixture
def fresh() -> Iterator[str]:
    """The name of an environment that does not exist, and is stopped after the test."""
    yield "fresh"
    down("fresh")


def record_of(name: str) -> Record:
    record = find(name)
    assert record is not None
    return record


def processes_of(name: str) -> list[psutil.Process]:
    """The supervisor and its descendants."""
    supervisor = psutil.Process(record_of(name).handle["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def part_of(name: str, module: str) -> psutil.Process:
    """The process that runs that module of ``aworld_train.serving``."""
    command_end = ["-m", f"aworld_train.serving.{module}"]

    def matching() -> list[psutil.Process]:
        _, *rest = processes_of(name)  # the supervisor's command ends with the one that it supervises
        return [one for one in rest if command_of(one)[-2:] == command_end]

    # What a process starts has its command line until it runs its own program.
    assert eventually(lambda: len(matching()) == 1, 10), matching()
    return matching()[0]


def command_of(process: psutil.Process) -> list[str]:
    """Empty where it has just ended: servers come and go with the sessions."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one
        return []


def folder_of(name: str) -> Path:
    return Path(record_of(name).handle["folder"])


def have_ended(processes: list[psutil.Process], within: float = 10.0) -> bool:
    return eventually(lambda: not any(map(runs, processes)), within)


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def has_ended(pid: int) -> bool:
    try:
        return not runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def temporary_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("aworld-env-*"))


def workers_of(connection: EnvConnection) -> dict[str, int]:
    workers: dict[str, int] = httpx.get(f"http://{connection.ip}:{connection.port}/health").json()["workers"]
    return workers


# A server with one tool, `say`, that needs nothing but Python and starts in no time.
SPEAK = """
import json, os, subprocess, sys, time
def say(**arguments):
    return "said"
{before}
for line in sys.stdin:
    message = json.loads(line)
    result = {{}}
    if message["method"] == "initialize":
        result = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}}}
        result["serverInfo"] = {{"name": "made", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {{"tools": [{{"name": "say", "inputSchema": {{"type": "object"}}}}]}}
    elif message["method"] == "tools/call":
        text = say(**message["params"]["arguments"])
        result = {{"content": [{{"type": "text", "text": text}}]}}
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


def make_directory(path: Path, before: str = "", expect: str = "said", **files: str) -> Path:
    """A directory whose server runs ``before`` when it starts."""
    path.mkdir()
    server = {
        "command": ["{python}", "{here}/server.py"],
        "optional_keys": ["GIVEN"],
        "test": {"tool": "say", "expect": expect},
    }
    (path / "servers.yaml").write_text(yaml.safe_dump({"name": "made", "servers": {"speaker": server}}))
    (path / "server.py").write_text(SPEAK.format(before=before))
    for name, text in files.items():
        (path / f"{name}.txt").write_text(text)
    return path


# The calculator


def test_health_is_json_and_needs_no_token(calculator: EnvConnection) -> None:
    health = httpx.get(f"http://{calculator.ip}:{calculator.port}/health").json()
    assert (health["status"], health["name"], health["servers"]) == ("ok", "shared", ["calculator"])
    assert health["workers"]["ready"] == calculator.workers == 1


async def test_there_is_exactly_one_tool_with_exactly_this_schema(calculator: EnvConnection) -> None:
    async with session(calculator) as client:
        (tool,) = (await client.list_tools()).tools
    assert (tool.name, tool.description) == ("calculator", "Evaluate an arithmetic expression.")
    assert tool.inputSchema == {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    }


async def test_a_value_is_text_and_a_failure_is_an_error_with_a_short_text(calculator: EnvConnection) -> None:
    async with session(calculator) as client:
        assert await call(client, "calculator", expression="(1 + 2) * 8") == "24"
        failure = await client.call_tool("calculator", {"expression": "1/0"})
        wrong_arguments = await client.call_tool("calculator", {"expr": "1"})
        with pytest.raises(McpError, match=r"no tool 'calculater'\. Did you mean 'calculator'"):
            await client.call_tool("calculater", {"expression": "1"})
    assert failure.isError and failure.content[0].text == "Error: division by zero"  # type: ignore[union-attr]
    assert wrong_arguments.isError and "expression" in wrong_arguments.content[0].text  # type: ignore[union-attr]


def test_hundreds_of_sessions_leave_no_memory_and_no_connections_behind(calculator: EnvConnection) -> None:
    parts = [part_of("shared", "env_gateway"), part_of("shared", "worker")]

    def play(sessions: int) -> None:
        headers = {**HEADERS, "Authorization": f"Bearer {calculator.token}"}
        with httpx.Client() as client:
            for _ in range(sessions):
                opened = client.post(calculator.mcp_url, headers=headers, json=HELLO)
                own = {**headers, "Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
                assert client.delete(calculator.mcp_url, headers=own).status_code == 200

    play(50)
    before = [(part.memory_info().rss, part.num_fds()) for part in parts]
    play(500)
    for part, (memory, files) in zip(parts, before, strict=True):
        assert part.memory_info().rss - memory < 4_000_000
        assert eventually(lambda part=part, files=files: part.num_fds() <= files)  # type: ignore[misc]
        assert part.num_threads() < 8


# Up


def test_what_is_up_and_unchanged_is_returned_as_it_is(calculator: EnvConnection) -> None:
    before = processes_of("shared")
    assert up(CALCULATOR, name="shared") == calculator
    assert up(CALCULATOR, name="shared", port=calculator.port) == calculator
    assert processes_of("shared") == [one for one in before if one.is_running()]
    assert [one.state for one in status("shared")] == ["up"]


def test_what_is_not_as_asked_is_started_again_and_its_users_find_it(fresh: str) -> None:
    first = up(CALCULATOR, name=fresh)
    processes, folder = processes_of(fresh), folder_of(fresh)
    second = up(CALCULATOR, name=fresh, workers=2)
    assert (second.token, second.mcp_url, second.workers) == (first.token, first.mcp_url, 2)
    assert have_ended(processes, within=0)
    assert not folder.exists()
    assert workers_of(second)["ready"] == 2


def test_what_cannot_replace_an_environment_leaves_it_as_it_is(tmp_path: Path) -> None:
    path = make_directory(tmp_path / "changed")
    first, processes, folders = up(path), processes_of("made"), temporary_folders()
    try:
        (path / "server.py").write_text(SPEAK.format(before="sys.exit('no: not today')"))
        with pytest.raises(EnvironmentFailure, match=r"(?s)'made' stays up as it was.*no: not today"):
            up(path)
        (path / "server.py").write_text(SPEAK.format(before=""))
        with (
            socket.create_server(("127.0.0.1", 0)) as other,
            pytest.raises(EnvironmentFailure, match="is in use"),
        ):
            up(path, workers=2, port=other.getsockname()[1])
        another = make_directory(tmp_path / "another")
        with pytest.raises(
            EnvironmentFailure, match=f"is that of {path}, not of {another}; choose another name"
        ):
            up(another)
        assert up(path) == first
        assert processes_of("made") == [one for one in processes if one.is_running()]
        assert temporary_folders() == folders
        assert [one.name for one in status() if one.name.startswith("made")] == ["made"]
        assert not list(registry.folder().glob("made-*"))
    finally:
        down("made")


def test_one_that_died_is_started_again_with_the_same_token_and_port(fresh: str) -> None:
    first = up(CALCULATOR, name=fresh)
    processes = processes_of(fresh)
    part_of(fresh, "local").kill()
    assert have_ended(processes)
    assert [one.state for one in status(fresh)] == ["dead"]
    second = up(CALCULATOR, name=fresh)
    assert (second.token, second.mcp_url) == (first.token, first.mcp_url)
    assert examine(second.mcp_url, first.token, {}, 30.0).tools == ["calculator"]


def test_one_whose_starter_was_killed_half_way_is_started_again(fresh: str) -> None:
    up(CALCULATOR, name=fresh)
    processes = processes_of(fresh)
    record, parent = record_of(fresh), psutil.Process(os.getppid())
    other = ProcessIdentity.of(parent.pid)
    registry.write(replace(record, ready=False, starter=other))
    with pytest.raises(EnvironmentFailure, match=f"is being started by process {other.pid}"):
        up(CALCULATOR, name=fresh)
    registry.write(replace(record, ready=False))
    assert [one.state for one in status(fresh)] == ["starting"]
    up(CALCULATOR, name=fresh)
    assert have_ended(processes, within=0)
    assert [one.state for one in status(fresh)] == ["up"]


def test_a_port_in_use_is_an_error_that_names_it(fresh: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentFailure, match=f"Port {port} on 127.0.0.1 is in use"):
            up(CALCULATOR, name=fresh, port=port)
    assert up(CALCULATOR, name=fresh, port=port).port == port


def test_a_chosen_port_that_is_taken_in_between_is_chosen_again(
    fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        used_port = other.getsockname()[1]
        monkeypatch.setattr(lifecycle, "_choose_port", lambda *_: used_port)
        connection = up(CALCULATOR, name=fresh, wait=20)
    assert connection.port != used_port


def test_on_the_wildcard_address_it_tells_one_that_others_can_reach(fresh: str) -> None:
    connection = up(CALCULATOR, name=fresh, host="0.0.0.0")
    assert connection.ip != "0.0.0.0"
    assert examine(connection.mcp_url, connection.token, {}, 30.0).tools == ["calculator"]


def test_a_server_that_ends_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    before = temporary_folders()
    path = make_directory(tmp_path / "ends", "sys.exit('no: not today')")
    with pytest.raises(
        EnvironmentFailure, match="'speaker' does not start: speaker ended unexpectedly"
    ) as caught:
        up(path)
    assert "\nno: not today" in caught.value.message
    assert registry.read("made") is None
    assert temporary_folders() == before


def test_a_server_that_never_answers_is_waited_for_in_public_and_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "REPORT_SECONDS", 0.2)
    path = make_directory(
        tmp_path / "silent", "print('pid', os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
    )
    lines: list[str] = []
    with pytest.raises(
        EnvironmentFailure,
        match=r"was not ready at .* within 25 s and was stopped: ready workers: 0 of 1, starting tool servers "
        r"\(speaker\): 1\. .*--wait .*env\.ready_timeout",
    ) as caught:
        up(path, workers=1, wait=25.0, report_progress=lines.append)
    assert has_ended(int(caught.value.message.rpartition("pid ")[2].split()[0]))
    assert registry.read("made") is None
    assert any(
        re.fullmatch(
            r"Waiting for made, \d+ of 25 s: ready workers: 0 of 1, starting tool servers \(speaker\): 1\.",
            line,
        )
        for line in lines
    )


def test_a_test_call_that_is_slow_is_said_to_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "REPORT_SECONDS", 0.2)
    path = make_slow_directory(tmp_path / "slow", seconds=1.5)
    lines: list[str] = []
    try:
        up(path, report_progress=lines.append)
        assert any("tools are called, of sleeper." in line for line in lines)
    finally:
        down("slow")


def test_a_test_call_that_is_not_answered_in_time_is_named_with_the_key_that_gives_it_more(
    tmp_path: Path,
) -> None:
    path = make_slow_directory(tmp_path / "slow", seconds=60)
    with pytest.raises(
        EnvironmentFailure,
        match=r"while tools are called, of sleeper\. .*env\.ready_timeout",
    ):
        up(path, wait=25.0)
    assert registry.read("slow") is None


STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.run("setsid sleep 600 & echo pids $! $$", shell=True, stdout=sys.stderr)
print("pids", os.getpid(), file=sys.stderr, flush=True)
"""


def test_a_server_that_fails_its_test_is_stopped_with_all_it_started_even_if_it_does_not_listen(
    tmp_path: Path,
) -> None:
    path = make_directory(tmp_path / "stubborn", STUBBORN, expect="something else")
    with pytest.raises(
        EnvironmentFailure, match=r"'say' of 'speaker' at .* does not work: it answered 'said' to"
    ) as caught:
        up(path, workers=1)
    lines = caught.value.message.partition("log:\n")[2].splitlines()
    pids = [int(pid) for line in lines if line.startswith("pids ") for pid in line.split()[1:]]
    assert len(pids) == 3
    assert all(map(has_ended, pids))
    assert registry.read("made") is None


def test_an_interrupted_start_leaves_nothing_running(fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = temporary_folders()
    started: list[psutil.Process] = []

    def interrupt(*_: object) -> None:
        started.extend(processes_of(fresh))
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "check_servers", interrupt)
    with pytest.raises(KeyboardInterrupt):
        up(CALCULATOR, name=fresh)
    # Guard, local, gateway, worker, spawner, calculator.
    assert len(started) == 6
    assert have_ended(started, within=0)
    assert registry.read(fresh) is None
    assert temporary_folders() == before


KILLED = """
import os, signal, sys
from aworld_train.env import lifecycle
lifecycle.check_servers = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
lifecycle.up(sys.argv[1], name=sys.argv[2], backend="process")
"""


def test_what_a_killed_start_left_is_an_orphan_and_is_removed(
    calculator: EnvConnection, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process of the tests may be starting containers: its lock is in a state folder of its own.
    monkeypatch.setenv("DOCKER_HOST", "unix:///there-is-none")
    subprocess.run([sys.executable, "-c", KILLED, CALCULATOR, fresh], timeout=60)
    assert [one.state for one in status(fresh)] == ["abandoned"]
    processes, folder = processes_of(fresh), folder_of(fresh)
    assert orphans() == [fresh]
    removed = CliRunner().invoke(app, ["down", "--orphans", "--json"])
    assert json.loads(removed.stdout) == {"environments": [{"name": fresh, "stopped": True}]}
    assert have_ended(processes, within=0)
    assert not folder.exists()
    assert [path.name for path in registry.folder().iterdir() if fresh in path.name] == []
    assert down_orphans() == []
    assert examine(calculator.mcp_url, calculator.token, {}, 30.0).tools == ["calculator"]


# Requirements


def make_wheel(folder: Path) -> Path:
    """A package that needs no other and no network to be installed."""
    wheel = folder / "aworld_tiny-1.0-py3-none-any.whl"
    described = "aworld_tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("aworld_tiny.py", "WORD = 'tiny'\n")
        file.writestr(f"{described}/METADATA", "Metadata-Version: 2.1\nName: aworld-tiny\nVersion: 1.0\n")
        file.writestr(
            f"{described}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{described}/RECORD", "")
    return wheel


@pytest.mark.parametrize("line", ["aworld-tiny @ file://{wheel}", "{wheel}"], ids=["name", "path"])
def test_a_directory_that_needs_more_gets_an_interpreter_of_its_own_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Nothing that pip would have to fetch.
    needs = line.format(wheel=make_wheel(tmp_path)) + "\n# a comment\nnot-here; python_version < '3'\n"
    source = "import aworld_tiny\ndef say(**_): return aworld_tiny.WORD + ' ' + sys.prefix"
    path = make_directory(tmp_path / "needs", source, expect="tiny", requirements=needs)
    messages: list[str] = []
    try:
        up(path, workers=1, report_progress=messages.append)
        (own,) = (tmp_path / "cache" / "aworld-train" / "venvs").glob("*/bin/python")
        assert any("Installing what made needs" in one for one in messages)
        messages.clear()
        up(path, workers=2, report_progress=messages.append)
        assert not any("Installing" in one for one in messages)
        assert str(own) in [word for one in processes_of("made") for word in command_of(one)]
    finally:
        down("made")


def test_requirements_that_cannot_be_installed_are_an_error_with_pips_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = make_directory(
        tmp_path / "needs", requirements="aworld-tiny @ file:///nowhere/aworld_tiny-1-py3-none-any.whl\n"
    )
    for _ in range(2):
        with pytest.raises(EnvironmentFailure, match=r"pip install .*failed:(.|\n)*nowhere"):
            up(path)
    assert registry.read("made") is None


def test_what_is_installed_already_needs_no_other_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    needs = "httpx>=0.1\n\n# a comment\n  PyYAML  # another\nnot-here; python_version < '3'\n"
    try:
        up(make_directory(tmp_path / "needs", requirements=needs), workers=1)
    finally:
        down("made")
    assert not (tmp_path / "cache").exists()


# Down


def test_down_leaves_nothing_behind(fresh: str) -> None:
    before = temporary_folders()
    connection = up(CALCULATOR, name=fresh)
    processes, folder = processes_of(fresh), folder_of(fresh)
    assert len(processes) == 6
    assert folder.stat().st_mode & 0o077 == 0
    assert down(fresh) is True
    assert have_ended(processes, within=0)
    assert not folder.exists()
    assert temporary_folders() == before
    assert not probe(f"http://{connection.ip}:{connection.port}/health")
    assert [path.name for path in registry.folder().iterdir() if fresh in path.name] == []
    assert down(fresh) is False
    assert status(fresh) == []


def test_a_clean_up_that_does_not_know_the_environment_leaves_its_folder_alone(
    fresh: str, tmp_path: Path
) -> None:
    """A user may have several folders of records, and all have one folder for temporary files."""
    place = os.environ | {"TMPDIR": tempfile.gettempdir()}
    command = ("env", "up", "--docker-dir", str(CALCULATOR), "--name", fresh, "--backend", "process")
    warm.run("-m", "aworld_train", *command, check=True, env=place, timeout=120)
    clean_up = "from aworld_train.env import clean_leftovers; print(clean_leftovers())"
    elsewhere = place | {"AWORLD_TRAIN_STATE": str(tmp_path)}
    done = warm.run("-c", clean_up, check=True, env=elsewhere, timeout=60)
    assert done.stdout.strip() == "[]"
    assert [one.state for one in status(fresh)] == ["up"]
    assert (folder_of(fresh) / "manifest.json").exists()


def test_a_pid_that_has_come_to_mean_another_process_is_left_alone(fresh: str) -> None:
    up(CALCULATOR, name=fresh)
    record = record_of(fresh)
    down(fresh)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    # What a record looks like when pids have come round again: its process was created before the one there.
    place, _, ticks = ProcessIdentity.of(bystander.pid).started.rpartition("/")
    earlier = f"{place}/{int(ticks) - 6000}"
    recycled = replace(record, handle={**record.handle, "pid": bystander.pid, "started": earlier})
    try:
        registry.write(recycled)
        assert [one.state for one in status(fresh)] == ["dead"]
        assert down(fresh) is False
        registry.write(recycled)
        up(CALCULATOR, name=fresh)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


# Parts that are lost


@pytest.fixture
def odd(fresh: str) -> EnvConnection:
    """One worker with tools that leave things behind."""
    return up(ODD, name=fresh, workers=1)


async def test_a_killed_worker_is_started_again_and_what_its_tools_left_is_gone(odd: EnvConnection) -> None:
    worker = part_of(odd.name, "worker")
    folder = folder_of(odd.name)
    async with session(odd) as opened:
        await call(opened, "leave_behind", mark="LEFT")
        # A process, in a session of its own, whose parent is ended before it.
        left = "setsid bash -c 'sleep 600; true' > /dev/null 2>&1 & sleep 0.2"
        await call(opened, "shell", command=left)
        below = worker.children(recursive=True)
        assert sum("sleep" in " ".join(command_of(one)) for one in below) >= 3
        assert any(folder.rglob("*LEFT*"))
        worker.kill()
        # Which of the two depends on whether the gateway has seen it before the call comes.
        with pytest.raises(McpError, match=r"worker of this session was lost|Session terminated"):
            await call(opened, "echo", text="x")
    assert have_ended(below)
    assert eventually(lambda: workers_of(odd)["ready"] == 1)
    assert not any(folder.rglob("*LEFT*"))
    assert part_of(odd.name, "worker") != worker
    async with session(odd) as opened:
        assert await call(opened, "echo", text="again") == "again"


def test_a_killed_gateway_is_started_again_on_its_port(fresh: str) -> None:
    connection = up(CALCULATOR, name=fresh)
    part_of(fresh, "env_gateway").kill()
    assert eventually(lambda: probe(f"http://{connection.ip}:{connection.port}/health"))
    assert examine(connection.mcp_url, connection.token, {}, 30.0).tools == ["calculator"]


async def test_folders_of_any_depth_end_with_the_session(odd: EnvConnection) -> None:
    worker = part_of(odd.name, "worker")
    dig = "import os\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('f', 'w').close()"
    async with session(odd) as opened:
        assert await call(opened, "shell", command=f'{sys.executable} -c "{dig}"') == ""
    assert eventually(lambda: workers_of(odd)["ready"] == 1)
    assert part_of(odd.name, "worker") == worker
    assert not any((folder_of(odd.name) / "0" / "workspace").iterdir())
    async with session(odd) as opened:
        await call(opened, "shell", command=f'{sys.executable} -c "{dig}"')
        worker.kill()
        assert eventually(lambda: workers_of(odd)["ready"] == 1)
    async with session(odd) as opened:
        assert await call(opened, "shell", command="ls -a") == ".\n..\n"
        await call(opened, "shell", command=f'{sys.executable} -c "{dig}"')
        folder = folder_of(odd.name)
        down(odd.name)
    assert not folder.exists()


# Owners


OWNER = """
import json, os, sys, time
from aworld_train.env import up
from aworld_train.process_supervisor import ProcessIdentity
print(json.dumps(up(sys.argv[1], name=sys.argv[2], backend="process", owner_pid=os.getpid()).to_json()), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_environment_ends_with_its_owner(fresh: str, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, CALCULATOR, fresh], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner, owner.stdout:
        try:
            assert EnvConnection(**json.loads(owner.stdout.readline())) == record_of(fresh).connection
            processes, folder = processes_of(fresh), folder_of(fresh)
            assert [(one.state, one.owner_pid) for one in status(fresh)] == [("up", owner.pid)]
            with pytest.raises(EnvironmentFailure, match=f"belongs to process {owner.pid}"):
                up(CALCULATOR, name=fresh)
        finally:
            # Not waited for: a zombie is dead too.
            owner.send_signal(number)
        assert have_ended(processes)
        assert registry.read(fresh) is None
        assert not folder.exists()


def test_an_owner_that_does_not_exist_is_refused(fresh: str) -> None:
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()
    with pytest.raises(UsageError, match=f"Process {ended_process.pid}"):
        up(CALCULATOR, name=fresh, owner_pid=ended_process.pid)


def test_an_environment_of_nobody_is_not_made_somebodys(calculator: EnvConnection) -> None:
    before = processes_of("shared")
    with pytest.raises(EnvironmentFailure, match="started by hand"):
        up(CALCULATOR, name="shared", owner_pid=os.getpid())
    assert processes_of("shared") == [one for one in before if one.is_running()]


@pytest.mark.parametrize(
    "before", ["", "import signal; sys.stdin = iter(sys.stdin.readline, None)"], ids=["good", "deaf"]
)
def test_nothing_outlives_the_guard(tmp_path: Path, before: str) -> None:
    up(make_directory(tmp_path / "made", before), workers=2)
    try:
        # The workers start their servers anew after the session in which they were tested.
        assert eventually(lambda: len(processes_of("made")) == 9)
        supervisor, *rest = processes_of("made")
        supervisor.kill()
        assert have_ended(rest)
    finally:
        down("made")


# Secrets


async def test_tools_get_what_they_need_and_no_secret_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-callers")
    monkeypatch.setenv("LC_TIME", "C")
    keys = tmp_path / "keys"
    keys.write_text("GIVEN=yes\nOPENAI_API_KEY=not-declared\n")
    path = make_directory(
        tmp_path / "made", "def say(**_): return json.dumps(dict(os.environ))", expect="PATH"
    )
    connection = up(path, workers=1, env_file=keys)
    try:
        async with session(connection) as opened:
            seen: dict[str, str] = json.loads(await call(opened, "say"))
        folder = folder_of("made")
        assert seen["GIVEN"] == "yes"
        assert seen["LC_TIME"] == "C"
        assert {seen["HOME"], seen["TMPDIR"], seen["WORKSPACE"]} == {
            str(folder / "0" / name) for name in ("home", "tmp", "workspace")
        }
        assert not [name for name in seen if name.startswith(("AWORLD_", "OPENAI_", "PYTHONPATH"))]
        secret = record_of("made").credentials.secret
        processes = processes_of("made")
        # The supervisor starts the parts, and of these only the gateway has to know it.
        knows = [processes[0], part_of("made", "local"), part_of("made", "env_gateway")]
        for process in processes:
            try:
                variables = process.environ()
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue  # workers are closed to all but root
            assert "OPENAI_API_KEY" not in variables
            assert (secret in variables.values()) is (process in knows)
    finally:
        down("made")


async def test_tools_are_told_where_the_data_is_and_other_data_is_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        (folder / "task.txt").write_text(folder.name)
    path = make_directory(
        tmp_path / "made",
        "def say(**_): return open(os.environ['ATTACHMENTS'] + '/task.txt').read()",
        expect="",
    )
    try:
        first = up(path, workers=1, data=folders[0])
        async with session(first) as opened:
            assert await call(opened, "say") == "first"
        (now,) = status("made")
        assert now.data == str(folders[0])
        monkeypatch.setattr(console, "out", Console(width=300))
        assert str(folders[0]) in CliRunner().invoke(app, ["status"]).stdout
        assert up(path, workers=1, data=folders[0]) == first
        pid = record_of("made").handle["pid"]
        second = up(path, workers=1, data=folders[1])
        assert record_of("made").handle["pid"] != pid
        async with session(second) as opened:
            assert await call(opened, "say") == "second"
    finally:
        down("made")


def test_no_secret_is_in_a_command_line_a_log_or_a_status(calculator: EnvConnection) -> None:
    examine(calculator.mcp_url, calculator.token, {}, 30.0)
    httpx.post(calculator.mcp_url, headers={"Authorization": f"Bearer {calculator.token}"}, content=b"{")
    shown = json.dumps([asdict(one) for one in status()])
    log = registry.log_path("shared")
    assert log.stat().st_mode & 0o077 == 0
    for secret in (calculator.token, record_of("shared").credentials.secret):
        for process in processes_of("shared"):
            assert secret not in " ".join(command_of(process))
        assert secret not in log.read_text()
        assert secret not in shown


# The command line


def run(*arguments: str) -> Any:
    """What a command that succeeds prints, read as JSON."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_the_commands_work_together(fresh: str) -> None:
    runner = CliRunner()
    connection = run(
        "up", "--docker-dir", CALCULATOR, "--name", fresh, "--backend", "process", "--workers", "2"
    )
    assert list(connection)[:3] == ["ip", "port", "token"]
    (shown,) = run("status", fresh, "--json")["environments"]
    assert (shown["state"], shown["backend"]) == ("up", "process")
    assert (shown["workers"]["ready"], shown["sessions"], shown["queued"]) == (2, 0, 0)
    assert (shown["servers"], shown["mcp_url"]) == (["calculator"], connection["mcp_url"])
    assert fresh in runner.invoke(app, ["status"]).stdout
    config = run("config", fresh)
    assert config["mcpServers"]["aworld-mcp"]["url"] == connection["mcp_url"]
    assert runner.invoke(app, ["logs", fresh]).exit_code == 0
    part_of(fresh, "local").kill()
    assert eventually(lambda: "dead" in runner.invoke(app, ["status", fresh]).stdout)
    assert runner.invoke(app, ["status", fresh]).exit_code == 1
    assert runner.invoke(app, ["test", fresh]).exit_code == 1
    assert run("down", fresh, "--json") == {"environments": [{"name": fresh, "stopped": False}]}
    assert runner.invoke(app, ["logs", fresh]).exit_code == 1


async def test_status_counts_sessions(calculator: EnvConnection) -> None:
    async with session(calculator):
        (shown,) = run("status", "shared", "--json")["environments"]
        assert (shown["sessions"], shown["workers"]["busy"]) == (1, 1)


def test_env_test_calls_each_server_and_times_it(calculator: EnvConnection) -> None:
    found = run("test", "shared", "--json")
    assert (found["name"], found["tools"], found["failed"]) == ("shared", ["calculator"], {})
    (server,) = found["servers"]
    assert (server["server"], server["tool"], server["problem"]) == ("calculator", "calculator", None)
    assert server["seconds"] > 0 and found["session_seconds"] > 0
    shown = CliRunner().invoke(app, ["test", "shared"])
    assert shown.exit_code == 0
    assert "calculator: calculator" in shown.stdout


def test_env_test_counts_the_tokens_of_each_servers_tools(calculator: EnvConnection) -> None:
    model = str(SHIPPED)
    costs = run("test", "shared", "--tokens", "--model", model, "--json")["tokens"]
    assert costs["calculator"]["tools"] == 1
    assert 0 < costs["calculator"]["short"] <= costs["calculator"]["tokens"]
    shown = CliRunner().invoke(app, ["test", "shared", "--tokens", "--model", model])
    assert str(costs["calculator"]["tokens"]) in shown.stdout
    for arguments in (["--tokens"], ["--model", model]):
        refused = CliRunner().invoke(app, ["test", "shared", *arguments])
        assert "go together" in str(refused.exception)


def test_recipe_check_counts_the_tokens_of_the_tools_of_an_environment_that_is_up(
    calculator: EnvConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_TOKEN", calculator.token)
    recipe = {"env": {"url": calculator.mcp_url}, "model": {"path": str(SHIPPED)}}
    assert re.search(r"by server: calculator \d+\.$", tools_remark(load(recipe)) or "")
    with pytest.raises(UsageError, match="Did you mean 'calculator'"):
        tools_remark(load(recipe | {"agent": {"tools": {"include": ["calculater"]}}}))


def test_env_test_fails_where_a_server_does(tmp_path: Path) -> None:
    turn = "def say(**_): return 'said' if not os.path.exists('{}') else 'nonsense'".format(
        tmp_path / "turned"
    )
    up(make_directory(tmp_path / "made", turn), workers=1)
    try:
        assert CliRunner().invoke(app, ["test", "made"]).exit_code == 0
        (tmp_path / "turned").touch()
        failed = CliRunner().invoke(app, ["test", "made", "--json"])
        assert failed.exit_code == 1
        assert "'nonsense'" in json.loads(failed.stdout)["failed"]["speaker"]
    finally:
        down("made")


def test_env_token_makes_another_token_with_limits_of_its_own(calculator: EnvConnection) -> None:
    token_result = run("token", "shared", "--ttl", "10m", "--sessions", "1", "--json")
    assert token_result["sessions"] == 1
    assert token_result["token"] != calculator.token
    assert examine(calculator.mcp_url, token_result["token"], {}, 30.0).tools == ["calculator"]
    plain = CliRunner().invoke(app, ["token", "shared"]).stdout
    assert examine(calculator.mcp_url, plain.strip(), {}, 30.0).tools == ["calculator"]


def test_env_logs_shows_what_servers_wrote_and_goes_on_until_the_end(tmp_path: Path) -> None:
    up(
        make_directory(tmp_path / "made", "print('hello from a server', file=sys.stderr, flush=True)"),
        workers=1,
    )
    try:
        shown = CliRunner().invoke(app, ["logs", "made", "--lines", "1"])
        assert shown.stdout == "hello from a server\n"
        command = [sys.executable, "-m", "aworld_train", "env", "logs", "made", "-f"]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "hello from a server\n"
            with registry.log_path("made").open("a") as log:
                log.write("and more\n")
            down("made")
            rest, _ = following.communicate(timeout=60)
            assert following.returncode == 0
            assert "and more\n" in rest
        finally:
            following.kill()
    finally:
        down("made")


ANSWERS = """
import os, urllib.request
from mcp.server.fastmcp import FastMCP

server = FastMCP("answers")

@server.tool()
def ask(file: str) -> str:
    address = os.environ.get("SERVICE", "none")
    answer = urllib.request.urlopen(f"{address}/words").read().decode() if address != "none" else ""
    return f"{address} {answer} {file}"

server.run()
"""


async def test_what_a_check_has_is_its_own_also_where_sessions_share_a_worker(
    state: None, tmp_path: Path
) -> None:
    folder = tmp_path / "answers"
    (folder / "site").mkdir(parents=True)
    (folder / "site" / "words").write_text("a bird")
    (folder / "server.py").write_text(ANSWERS)
    test = {
        "tool": "ask",
        "arguments": {"file": "{here}/x"},
        "expect": f"a bird {folder}/x",
        "site": "site",
        "environment": {"SERVICE": "{site}"},
    }
    server = {"command": ["{python}", "{here}/server.py"], "optional_keys": ["SERVICE"], "test": test}
    manifest = {"name": "answers", "sessions_per_worker": 4, "servers": {"answers": server}}
    (folder / "servers.yaml").write_text(yaml.safe_dump(manifest))
    call_of_test = find_directory(folder).manifest.servers["answers"].test
    connection = up(folder, name="answers", workers=1)
    try:
        async with session(connection) as opened:
            assert await call(opened, "ask", file="{here}/x") == "none  {here}/x"
            check = examine(connection.mcp_url, connection.token, {"answers": call_of_test}, 30)
            assert [one.problem for one in check.servers] == [None]
            assert await call(opened, "ask", file="{here}/x") == "none  {here}/x"
    finally:
        down("answers")
