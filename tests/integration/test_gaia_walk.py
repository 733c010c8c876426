"""From `env up --data` to answers: questions of GAIA's kind are solved by scripted calls, and sessions do not mix."""

import asyncio
import json
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import docker
from aworld_train.env import EnvConnection, down, status, up
from aworld_train.env.containers import build_image
from aworld_train.env.directory import find_directory
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import eventually, need_docker, session
from tests.gaia_questions import (
    PORT,
    QUESTIONS,
    Agent,
    how_many_slides_are_about_whales,
    what_platform_does_the_sign_name,
)
from tests.hostile import impostor_rounds
from tests.properties import part_of

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(2400),
]

NAME = "gaia-walk"
SESSIONS = 8
CALLS = 125
_QUESTION_SECONDS = 600


@dataclass(frozen=True)
class Prepared:
    """What environments for questions are started with.

    Attributes:
        keys: The answers, by the questions' names.
    """

    folder: Path
    env_file: Path
    keys: dict[str, str]

    def up(self, name: str, workers: int) -> EnvConnection:
        return up(
            "gaia-mcp-server",
            name=name,
            backend="docker",
            workers=workers,
            env_file=self.env_file,
            data=self.folder,
            wait=300,
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The files of the questions, made by the interpreter of the tools' image."""
    need_docker()
    image = build_image(find_directory("gaia-mcp-server"), lambda line: None, pull=False, rebuild=False)
    folder = tmp_path_factory.mktemp("data")
    folder.chmod(0o777)  # a container's user writes there
    docker.from_env().containers.run(
        image,
        ["-c", Path(__file__).with_name("gaia_files.py").read_text()],
        entrypoint="python3",
        volumes={str(folder): {"bind": "/made", "mode": "rw"}},
        working_dir="/made",
        remove=True,
    )
    keys = json.loads((folder / "keys.json").read_text())
    (folder / "keys.json").unlink()  # no tool is to find them
    (folder / "site").chmod(0o777)
    shutil.copyfile(Path(__file__).with_name("gaia_site.py"), folder / "site" / "serve.py")
    env_file = tmp_path_factory.mktemp("keys") / "env"
    env_file.write_text(f"TOOLS_ALLOWED_HOSTS=127.0.0.1:{PORT}\nWIKIPEDIA_BASE_URL=http://127.0.0.1:{PORT}\n")
    return Prepared(folder, env_file, keys)


@asynccontextmanager
async def agent(connection: EnvConnection) -> AsyncIterator[Agent]:
    async with session(connection) as opened:
        yield Agent(opened)


# Questions


@dataclass
class Run:
    """What the agents answered.

    Attributes:
        answers: By question; the error instead of an answer where there was one.
        waited: Seconds until a session had a worker, by question.
        calls: Tools, and seconds that they took.
    """

    seconds: float = 0.0
    answers: dict[str, str] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, float]] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(prepared: Prepared) -> Iterator[Run]:
    """All questions, each in a session of its own: eight sessions at a time, and two workers that they wait for."""
    connection = prepared.up(f"{NAME}-questions", workers=2)
    try:
        yield asyncio.run(ask(connection))
    finally:
        down(connection.name)


async def ask(connection: EnvConnection) -> Run:
    places = asyncio.Semaphore(SESSIONS)
    done = Run()

    async def answer(name: str) -> None:
        async with places:
            began = time.monotonic()
            try:
                async with asyncio.timeout(_QUESTION_SECONDS), agent(connection) as own:
                    done.waited[name] = time.monotonic() - began
                    done.answers[name] = await QUESTIONS[name](own)
                    done.calls += own.seconds
            except Exception as error:  # it is the answer of this question alone
                done.answers[name] = "".join(traceback.format_exception(error))[-4000:]

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for name in QUESTIONS:
            group.create_task(answer(name))
    done.seconds = time.monotonic() - began
    return done


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered(run: Run, prepared: Prepared, question: str) -> None:
    answer, key = run.answers[question], prepared.keys[question]
    assert answer == key, answer


def test_every_question_has_a_key(run: Run, prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(prepared.keys) == set(QUESTIONS)
    seconds = [one for _, one in run.calls]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(QUESTIONS)} questions, {len(seconds)} calls, {SESSIONS} sessions at a time on 2 workers: "
            f"{run.seconds:.1f} s; a call {statistics.median(seconds):.3f} s (median), "
            f"longest {max(run.calls, key=lambda one: one[1])}; "
            f"waited for a worker {statistics.median(run.waited.values()):.1f} s (median)\n"
        )


# Many sessions


@pytest.fixture(scope="module")
def walked(prepared: Prepared) -> Iterator[EnvConnection]:
    """Eight workers."""
    yield prepared.up(NAME, workers=SESSIONS)
    down(NAME)


async def keep_busy(own: Agent, mark: str, max_calls: int, starting: asyncio.Semaphore) -> None:
    """Leave traces of every kind, and find one's own alone."""
    page = f"<title>{mark}</title><p>page of {mark}</p><textarea aria-label=words></textarea>"
    commands = [f"echo {mark} > {mark}.txt", f"mkdir pages; echo '{page}' > pages/index.html"]
    for command in commands:
        await own.use("execute_command", command=command)
    await own.serve("pages")
    async with starting:
        shown = await own.use("browser_navigate", url=f"http://127.0.0.1:{PORT}/")
    assert shown["title"] == mark
    assert f"= {mark}" in (await own.use("browser_type", element=1, text=mark))["text"]
    assert (await own.use("extract_text_content", file_path=f"{mark}.txt"))["content"].strip() == mark
    code = f"open('table.csv', 'w').write('name,size\\n{mark},7\\n'); print('{mark}')"
    assert (await own.use("run_python_code", code=code))["stdout"].strip() == mark
    assert mark in json.dumps(await own.use("extract_csv_content", file_path="table.csv"))
    assert await how_many_slides_are_about_whales(own) == "2"
    assert await what_platform_does_the_sign_name(own) == "42"
    assert mark in (await own.use("browser_read"))["text"]
    listed = (await own.use("execute_command", command="ls"))["output"].split()
    assert listed == sorted([f"{mark}.txt", "pages", "table.csv"])
    history = (await own.use("get_command_history", count=100))["commands"]
    assert [one["command"] for one in history[:2]] == commands and len(history) == 4
    while len(own.seconds) < max_calls:
        assert (await own.use("execute_command", command="cat *.txt"))["output"] == mark


async def test_eight_sessions_at_a_time_do_not_mix(
    walked: EnvConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [CALLS // SESSIONS + (number < CALLS % SESSIONS) for number in range(SESSIONS)]
    spent: list[tuple[str, float]] = []
    memory: list[int] = []
    # Beside other tests, eight browsers that start at once starve.
    starting = asyncio.Semaphore(2)

    async def play(number: int, calls: int) -> None:
        async with agent(walked) as own:
            await keep_busy(own, f"mark-{number}", calls, starting)
            spent.extend(own.seconds)
            memory.append(await asyncio.to_thread(most_memory))

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, calls in enumerate(shares):
            group.create_task(play(number, calls))
    took = time.monotonic() - began
    assert len(spent) == CALLS
    seconds = [one for _, one in spent]
    p95 = statistics.quantiles(seconds, n=20)[-1]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{CALLS} calls, {SESSIONS} sessions at a time: {took:.1f} s; median {statistics.median(seconds):.3f} s, "
            f"p95 {p95:.2f} s, longest {max(spent, key=lambda one: one[1])}; "
            f"a worker used {max(memory) >> 20} MB at most\n"
        )


def workers() -> list[Any]:
    labels = [f"aworld-train.environment={NAME}", "aworld-train.role=worker"]
    found: list[Any] = docker.from_env().containers.list(filters={"label": labels})
    return found


def most_memory() -> int:
    """Bytes that the largest worker uses, without what the kernel caches for it."""
    used = []
    for one in workers():
        stats = one.stats(stream=False)["memory_stats"]
        caches = stats["stats"].get("inactive_file", stats["stats"].get("total_inactive_file", 0))
        used.append(int(stats["usage"]) - int(caches))
    return max(used)


def test_a_worker_is_soon_ready_for_its_first_call(
    walked: EnvConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    def ready() -> bool:
        (now,) = status(NAME)
        return now.workers.get("ready") == SESSIONS

    assert eventually(ready, 60)
    worker = workers()[0]
    worker.kill()
    assert eventually(lambda: not ready(), 10)
    worker.start()
    began = time.monotonic()
    assert eventually(ready, 60)
    with capsys.disabled():
        sys.stdout.write(f"\na worker was ready {time.monotonic() - began:.1f} s after its start\n")


async def test_no_session_is_answered_by_what_a_tool_put_in_its_workers_place(walked: EnvConnection) -> None:
    headers = {"Authorization": f"Bearer {walked.token}", "MCP_SERVERS": "terminal-server"}
    server = ToolServer(walked.mcp_url, headers, call_timeout=60, connect_timeout=300)

    async def shell(tools: ToolSession, command: str) -> str:
        return (await tools.call("execute_command", {"command": command, "output_format": "text"})).text

    await impostor_rounds(server, shell, rounds=part_of(200), seed=1, at_once=SESSIONS)
