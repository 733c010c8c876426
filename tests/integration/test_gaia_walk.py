"""From `env up --data` to answers: tasks of GAIA's kind are solved by scripted calls, and many sessions do not mix."""

import asyncio
import json
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession

import docker
from aworld_train.env import EnvConnection, down, status, up
from aworld_train.env.containers import build_image
from aworld_train.env.directory import find_directory
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import eventually, need_docker, session, text_of
from tests.hostile import impostor_rounds

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(2400),
]

NAME = "gaia-walk"
PORT = 8000
SESSIONS = 8
CALLS = 125


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvConnection]:
    """Eight workers with the files of the tasks."""
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
    keys = tmp_path_factory.mktemp("keys") / "env"
    keys.write_text(f"TOOLS_ALLOWED_HOSTS=127.0.0.1:{PORT}\n")
    yield up(
        "gaia-mcp-server",
        name=NAME,
        backend="docker",
        workers=SESSIONS,
        env_file=keys,
        data=folder,
        wait=300,
    )
    down(NAME)


class Agent:
    """An agent whose calls are written down beforehand, and measured."""

    def __init__(self, opened: ClientSession):
        self._opened = opened
        self.seconds: list[tuple[str, float]] = []

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a result that is no error says as JSON, or else its facts and its ``text``."""
        began = time.monotonic()
        result = await self._opened.call_tool(tool, arguments)
        self.seconds.append((tool, time.monotonic() - began))
        assert not result.isError, (tool, result.content)
        shown = text_of(result)
        if result.structuredContent is None:
            return dict(json.loads(shown))
        return {**result.structuredContent, "text": shown}

    async def serve(self, folder: str) -> None:
        """Have the files of a folder served in its own worker."""
        command = f"cd {folder} && (nohup python3 -m http.server {PORT} >/dev/null 2>&1 &) ; sleep 1; echo up"
        assert (await self.use("execute_command", command=command))["output"] == "up"


@asynccontextmanager
async def agent(connection: EnvConnection) -> AsyncIterator[Agent]:
    async with session(connection) as opened:
        yield Agent(opened)


# Five tasks


async def how_much_was_sold_in_oslo_in_2023(own: Agent) -> str:
    sheet = await own.use("extract_csv_content", file_path="/attachments/sales.xlsx", output_format="json")
    _, *rows = sheet["content"]
    return f"{sum(sold for city, year, sold in rows if (city, int(year)) == ('Oslo', 2023)):g}"


async def how_many_slides_are_about_whales(own: Agent) -> str:
    text = (await own.use("extract_pptx_content", file_path="/attachments/talk.pptx"))["text"]
    return str(sum("whales" in slide.lower() for slide in text.split("## Slide")[1:]))


async def which_number_is_spoken(own: Agent) -> str:
    arguments = {"file_path": "/attachments/digits.wav", "output_format": "text"}
    words = (await own.use("transcribe_audio", **arguments))["text"].split()
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return "".join(str(names.index(word)) for word in words)


async def what_platform_does_the_sign_name(own: Agent) -> str:
    text = (await own.use("extract_text_ocr", file_path="/attachments/sign.png"))["text"]
    return "".join(re.findall(r"\d+", text.partition("\n\n")[2]))


async def when_does_the_museum_open_on_sundays(own: Agent) -> str:
    await own.serve("/attachments/site")
    page = await own.use("browser_navigate", url=f"http://127.0.0.1:{PORT}/")
    (number,) = re.findall(r"\[(\d+) link: Opening hours\]", page["text"])
    page = await own.use("browser_click", element=int(number))
    return "".join(re.findall(r"opens at (\S+)\.", page["text"]))


TASKS: dict[Callable[[Agent], Awaitable[str]], str] = {
    how_much_was_sold_in_oslo_in_2023: "42",
    how_many_slides_are_about_whales: "2",
    which_number_is_spoken: "47193",
    what_platform_does_the_sign_name: "42",
    when_does_the_museum_open_on_sundays: "11:30",
}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
async def test_a_task_is_solved(walked: EnvConnection, task: Callable[[Agent], Awaitable[str]]) -> None:
    async with agent(walked) as own:
        assert await task(own) == TASKS[task]


# Many sessions


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
        result = await tools.call("execute_command", {"command": command})
        return str(((result.raw or {}).get("structuredContent") or {}).get("output", result.text))

    await impostor_rounds(server, shell, rounds=200, seed=1, at_once=SESSIONS)
