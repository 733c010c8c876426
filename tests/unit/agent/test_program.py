"""Agents that are programs: real ones, that behave and misbehave."""

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.external_agent import external_agent
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.agent import AgentFailed, AgentTimedOut, program
from aworld_train.agent.program import ProgramAgent
from aworld_train.episode.outcome import Outcome
from aworld_train.errors import RecipeError, UsageError
from aworld_train.recipe.agent_command import PROVIDED
from tests.agents import around, question
from tests.environments import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run Python source as an agent."""

    async def run(source: str, *, seconds: float = 30, **extra: Any) -> str:
        script = tmp_path / "agent.py"
        script.write_text(source)
        agent = ProgramAgent(["python", str(script)])
        return await agent.run(question("48/2", **extra), around(tmp_path / "run", seconds=seconds))

    return run


def alive(mark: str) -> list[psutil.Process]:
    """The processes that have ``mark`` in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            living = process.status() != psutil.STATUS_ZOMBIE
            if living and mark in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_answer_is_the_last_line_that_is_not_empty(run: Any) -> None:
    assert await run("print('thinking'); print('  <answer>24</answer> '); print()") == "<answer>24</answer>"


async def test_program_whose_lines_are_all_empty_answers_nothing(run: Any) -> None:
    assert await run("print('  ')") == ""


async def test_task_is_one_json_object_on_stdin(run: Any) -> None:
    source = "import json, sys; print(json.dumps(json.load(sys.stdin)))"
    payload = json.loads(await run(source, level="easy"))
    assert payload["text"] == "What is 48/2?"
    assert [message["role"] for message in payload["messages"]] == ["system", "user"]
    assert payload["extra"] == {"level": "easy"}


async def test_program_that_does_not_read_its_task_answers_too(run: Any) -> None:
    padding = "x" * 1_000_000
    assert await run("print('fine')", padding=padding) == "fine"


async def test_values_of_numpy_reach_the_program_as_plain_ones(run: Any) -> None:
    import numpy

    source = "import json, sys; print(json.load(sys.stdin)['extra'])"
    assert await run(source, array=numpy.arange(3), one=numpy.int64(1)) == "{'array': [0, 1, 2], 'one': 1}"


async def test_a_program_finds_modules_beside_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "an_agent_of_mine.py").write_text("print('found')")
    monkeypatch.setenv("AWORLD_TRAIN_USER_DIRECTORY", str(tmp_path))
    agent = ProgramAgent(["python", "-m", "an_agent_of_mine"])
    assert await agent.run(question("1+1"), around(tmp_path / "run", seconds=30)) == "found"


async def test_an_episode_has_a_folder_of_its_own_and_finds_nothing_of_another(run: Any) -> None:
    """As coding agents do, it keeps notes where it works, and beside its temporary files."""
    source = """
import os, pathlib, tempfile
places = {pathlib.Path.cwd(), pathlib.Path(os.environ["AGENT_FOLDER"]), pathlib.Path(tempfile.gettempdir())}
found = [str(place) for place in places if (place / "notes").exists()]
for place in places:
    (place / "notes").write_text("42")
print(len(places), found, pathlib.Path.cwd(), oct(pathlib.Path.cwd().stat().st_mode & 0o777))
"""
    answers = [await run(source) for _ in range(2)]
    folders = [Path(answer.split()[2]) for answer in answers]
    assert [answer.split()[:2] for answer in answers] == [["1", "[]"]] * 2
    assert [answer.split()[3] for answer in answers] == ["0o700"] * 2
    assert folders[0] != folders[1] and not any(folder.parent.exists() for folder in folders)


@pytest.mark.parametrize("source", ["raise SystemExit(3)", "while True: pass"])
async def test_the_folder_of_a_program_that_fails_is_removed_too(
    run: Any, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((AgentFailed, AgentTimedOut)):
        await run(source, seconds=2)
    assert not [name for name in os.listdir(tmp_path) if "agent-" in name]  # noqa: PTH208


async def test_a_folder_that_grows_too_large_ends_the_program(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_MAX_FOLDER_BYTES", 1 << 20)
    monkeypatch.setattr(program, "_FOLDER_SECONDS", 0.1)
    source = "import time; open('large', 'wb').write(bytes(3 << 20)); time.sleep(600)"
    with pytest.raises(AgentFailed, match="into its folder, and was ended"):
        await run(source)


async def test_files_of_the_command_are_found_from_where_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/one.py").write_text("import sys; print(open(sys.argv[1]).read(), sys.argv[2:])")
    (tmp_path / "prompt.txt").write_text("found")
    monkeypatch.chdir(tmp_path)
    agent = ProgramAgent(["python", "agents/one.py", "prompt.txt", "agents", "./agents", "json"])
    answer = await agent.run(question("1+1"), around(tmp_path / "run", seconds=30))
    assert answer == f"found ['agents', '{tmp_path / 'agents'}', 'json']"


PRINTS_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
# What Python or the C library may add for itself.
ADDED = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}


async def test_environment_names_the_episode_s_endpoints(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MCP_SERVER_TOKEN", "OPENAI_API_KEY", "LLM_API_KEY"):
        monkeypatch.setenv(name, "the-trainer's")
    monkeypatch.setenv("NO_PROXY", "intranet")
    seen = json.loads(await run(PRINTS_ENVIRONMENT))
    assert "the-trainer's" not in seen.values()
    assert seen["OPENAI_BASE_URL"] == seen["LLM_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert seen["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert seen["OPENAI_API_KEY"] == "key-of-None"
    assert seen["OPENAI_MODEL"] == "the-model"
    assert (seen["MCP_SERVER_URL"], seen["MCP_SERVER_TOKEN"]) == ("http://127.0.0.1:9/mcp", "the-episode's")
    assert seen["NO_PROXY"] == "intranet,127.0.0.1"
    assert seen["AGENT_FOLDER"] == seen["TMPDIR"] != ""


async def test_a_program_has_what_is_listed_of_the_trainer_s_environment_and_nothing_else(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_variables = {
        **{name: f"of-{name}" for name in ("USER", "LOGNAME", "SHELL", "TZ", "LC_MESSAGES", "LANGUAGE")},
        **{name: f"of-{name}" for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "LC_ALL", "LANG")},
        **dict.fromkeys(("HOME", "PYTHONPATH", "LD_LIBRARY_PATH"), "/some/where"),
        **dict.fromkeys(("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "1"),
        "ROCR_VISIBLE_DEVICES": "1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://proxy:1"),
        **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://proxy:2"),
        **dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"), "/ca"),
        **dict.fromkeys(("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"), "/ca"),
        "PATH": os.environ["PATH"],
    }
    for name in os.environ:
        monkeypatch.delenv(name)
    others = (
        "WANDB_API_KEY",
        "HF_TOKEN",
        "MY_DATABASE",
        "RAY_AUTH_TOKEN_PATH",
        "AWORLD_TRAIN_RUN_DIR",
        "LCX",
    )
    for name, value in {**listed_variables, **dict.fromkeys(others, "the-trainer's")}.items():
        monkeypatch.setenv(name, value)
    seen = json.loads(await run(PRINTS_ENVIRONMENT))
    own_variables = {name: value for name, value in seen.items() if name not in PROVIDED | ADDED}
    assert own_variables == listed_variables
    assert set(seen) >= PROVIDED, "the names that a recipe may not set are those that the run sets"


async def test_variables_of_the_recipe_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "the-search-key")
    script = tmp_path / "agent.py"
    script.write_text(PRINTS_ENVIRONMENT)
    section = {
        "command": ["python", str(script)],
        "environment": {"SEARCH_KEY": "${oc.env:SEARCH_KEY}", "MODE": r"\${x}", "HOME": "/elsewhere"},
    }
    written = yaml.safe_dump(episode_settings(recipes.load({"agent": section})))
    assert "the-search-key" not in written
    agent = external_agent(settings_from(yaml.safe_load(written)).agent)
    seen = json.loads(await agent.run(question("1"), around(tmp_path / "run")))
    assert (seen["SEARCH_KEY"], seen["MODE"], seen["HOME"]) == ("the-search-key", "${x}", "/elsewhere")


PRINTS_ARGUMENTS = """
import json, multiprocessing, os, pathlib, sys
import beside
line = pathlib.Path("/proc/self/cmdline").read_text() + pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text()
seen = [name for name, value in os.environ.items() if "the-key" in value]
print(json.dumps([sys.argv, "the-key" in line, __name__, beside.WORD, seen]))
"""


@pytest.mark.parametrize("module", [False, True])
async def test_arguments_from_the_environment_reach_a_python_program_and_stand_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: bool
) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'")
    (tmp_path / "agent.py").write_text(PRINTS_ARGUMENTS)
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("KEY", "the-key")
    monkeypatch.chdir(tmp_path)
    program = ["-m", "agent"] if module else ["${oc.env:FOLDER}/agent.py"]
    command = recipes.load({"agent": {"command": ["python", *program, "--key=${oc.env:KEY}"]}}).agent.command
    agent = ProgramAgent(command)
    agent.check()
    arguments, on_command_line, name, variable, variables = json.loads(
        await agent.run(question("1"), around(tmp_path / "run"))
    )
    assert arguments == [str(tmp_path / "agent.py"), "--key=the-key"]
    assert (on_command_line, name, variable, variables) == (False, "__main__", "found", [])


async def test_a_program_that_fails_is_named_without_what_the_environment_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "the-key")
    script = tmp_path / "agent.py"
    script.write_text("raise SystemExit(3)")
    command = recipes.load({"agent": {"command": ["python", str(script), "${oc.env:KEY}"]}}).agent.command
    with pytest.raises(AgentFailed, match=r"\$\{oc\.env:KEY\}: it ended with code 3") as failed:
        await ProgramAgent(command).run(question("1"), around(tmp_path / "run"))
    assert "the-key" not in str(failed.value)


@pytest.mark.parametrize("command", [["node", "a.js"], ["python", "-c", "x"], ["python", "-u", "a.py"], []])
def test_arguments_from_the_environment_are_refused_where_they_would_be_on_a_command_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "the-key")
    with pytest.raises(RecipeError, match="a command line is open to every user") as refused:
        recipes.load({"agent": {"command": [*command, "${oc.env:KEY}"]}})
    assert "the-key" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('no such tool')", "code 1.*ValueError: no such tool"),
        ("import sys; print('half an answer'); sys.exit(3)", "ended with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal 11"),
        ("import sys; print('why', file=sys.stderr)", "printed no answer.*why"),
    ],
)
async def test_program_that_fails_says_how(run: Any, source: str, message: str) -> None:
    with pytest.raises(AgentFailed, match=f"(?s){message}") as failed:
        await run(source)
    assert failed.value.outcome is AgentFailed.outcome


@pytest.mark.parametrize("command", [["/no/such/program"], ["no-such-program-anywhere", "x"]])
async def test_program_that_is_not_there_is_a_failure(tmp_path: Path, command: list[str]) -> None:
    agent = ProgramAgent(command)
    with pytest.raises(AgentFailed, match="not a program"):
        await agent.run(question("1"), around(tmp_path))
    with pytest.raises(UsageError, match="not a program"):
        agent.check()


async def test_script_that_is_not_there_is_found_by_the_check() -> None:
    with pytest.raises(UsageError, match=r"No such file: 'nowhere\.py'"):
        ProgramAgent(["python", "nowhere.py"]).check()


async def test_program_that_hangs_is_ended_at_the_limit(run: Any) -> None:
    began = time.monotonic()
    with pytest.raises(AgentTimedOut, match=r"not done after 2 seconds") as failed:
        await run("import time; time.sleep(3600)", seconds=2)
    assert failed.value.outcome is Outcome.timeout
    assert time.monotonic() - began < 60


async def test_nothing_that_a_program_started_outlives_it(run: Any) -> None:
    mark = f"grandchild-{os.getpid()}"
    source = f"""
import signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
for own_session in (False, True):
    subprocess.Popen([sys.executable, "-c", stubborn, "{mark}"], start_new_session=own_session)
# A daemon: its parent is gone before it is looked for.
double = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.run([sys.executable, "-c", double, sys.executable, "-c", stubborn, "{mark}"], start_new_session=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
print("done")
"""
    assert await run(source) == "done"
    assert not alive(mark)
    with pytest.raises(AgentTimedOut):
        await run(source.replace("else 0.5", "else 3600"), seconds=4)
    assert not alive(mark)


async def test_program_that_ignores_sigterm_is_killed_when_the_episode_is_cancelled(
    run: Any, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    source = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    episode = asyncio.create_task(run(source + f"open({str(ready)!r}, 'w').close()\ntime.sleep(3600)"))
    assert await asyncio.to_thread(eventually, ready.exists)
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert not alive(str(tmp_path))


async def test_flood_ends_the_program_and_fills_no_memory(run: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AgentFailed, match="printed more than"):
        await run("while True: print('x' * 1_000_000)")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


async def test_much_that_stays_below_the_limit_is_read_and_forgotten(run: Any) -> None:
    source = "import sys\nfor _ in range(100): print('y' * 50_000); print('z' * 50_000, file=sys.stderr)\nprint('end')"
    assert await run(source) == "end"


async def test_output_that_is_no_text_harms_nobody(run: Any) -> None:
    source = r"import os; os.write(1, b'\xff\xfe\n'); os.write(1, '<answer>é</answer>'.encode())"
    assert await run(source) == "<answer>é</answer>"


async def test_no_more_than_so_many_run_at_a_time_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_AT_ONCE", 3)
    log = tmp_path / "log"
    script = tmp_path / "agent.py"
    script.write_text(
        f"import os, time\nf = os.open({str(log)!r}, os.O_APPEND | os.O_CREAT | os.O_WRONLY)\n"
        "os.write(f, b'+'); time.sleep(0.3); os.write(f, b'-'); print('ok')"
    )
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    agents = [ProgramAgent(["python", str(script)]) for _ in range(9)]
    answers = await asyncio.gather(*(one.run(question("1"), around(tmp_path)) for one in agents))
    ticking.cancel()
    assert answers == ["ok"] * 9
    running = most = 0
    for event in log.read_text():
        running += 1 if event == "+" else -1
        most = max(most, running)
    assert most <= 3
    assert ticks > 20
