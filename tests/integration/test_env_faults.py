"""Parts that somebody kills while episodes are played: no fault of theirs, so they are played again and score nothing.

    pytest -m slow tests/integration/test_env_faults.py

One part is killed in each round, at a moment that is drawn. The seed is in the output of a test that fails.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.player import EpisodePlayer, FinishedEpisode
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, open_record
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.env import EnvConnection, down, find, health_url, up
from aworld_train.env.backend import Size
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout import chat_endpoint
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.rollout.chat_endpoint import ChatEndpoint
from tests.environments import ODD, all_ready, containers, eventually, need_docker, workers

pytestmark = pytest.mark.timeout(1800)
ROUNDS = [pytest.param(6, id="some"), pytest.param(50, id="many", marks=pytest.mark.slow)]
# Calls a tool that takes long when it is first asked about a task, and says so, then one that does not, and answers.
ENGINE = """
import time
from tests.openai_stub import OpenAIStub, calls, says
tasks = set()
def script(request):
    last = request.messages[-1]
    if last["role"] == "tool":
        return says("42")
    first = last["content"] not in tasks
    tasks.add(last["content"])
    if not first:
        return calls("echo", text="on")
    print("calls", flush=True)
    return calls("wait", seconds=7)
with OpenAIStub(script) as stub:
    print(stub.url(), flush=True)
    time.sleep(3600)
"""


NO_EVIDENCE = {"one of two workers": {Outcome.broken_tools, Outcome.answered}, "proxy": {Outcome.answered}}
"""Parts that the session itself could have ended (see docs/security.md), or that another session had."""


@dataclass
class Engine:
    """A model in a process of its own, started again when it was killed."""

    process: "subprocess.Popen[str] | None" = None
    url: str = ""

    def model(self) -> ChatEndpoint:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True)
            assert self.process.stdout is not None
            self.url = self.process.stdout.readline().strip()
        return ChatEndpoint(EndpointAddress(self.url, "m"), concurrency=1, request_timeout=60)

    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait_for_call(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        assert self.process.stdout.readline() == "calls\n"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(chat_endpoint, "MAX_OUTAGE_SECONDS", 0.5)
    made = Engine()
    yield made
    if made.process is not None:
        with made.process as process:
            process.kill()


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What episodes leave behind."""
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    (tmp_path / "traces").mkdir()
    return tmp_path / "traces" / "episodes.jsonl"


async def play(model: ChatEndpoint, number: int) -> FinishedEpisode:
    player = EpisodePlayer(settings_from(episode_settings(recipes.load({"env": {"recovery_timeout": 120}}))))
    open_record(number, False, number)
    return await player.play(
        model.for_episode(),
        {"raw_prompt": [{"role": "user", "content": f"Task {number}?"}]},
        {},
        model_name="m",
        max_prompt_tokens=1000,
        max_response_tokens=1000,
    )


async def killed_while_a_tool_is_called(
    engine: Engine, number: int, pids: list[int], rng: random.Random
) -> FinishedEpisode:
    """An episode whose parts, or those of its environment, are killed in the middle of it."""
    playing = asyncio.ensure_future(play(engine.model(), number))
    calling = asyncio.ensure_future(asyncio.to_thread(engine.wait_for_call))
    await asyncio.wait([playing, calling], return_when=asyncio.FIRST_COMPLETED)
    if playing.done():
        os.kill(engine.pid(), signal.SIGKILL)
        raise AssertionError(f"no tool was called: {playing.result()}")
    await asyncio.sleep(rng.uniform(1.0, 3.0))
    for pid in pids or [engine.pid()]:
        os.kill(pid, signal.SIGKILL)
    return await playing


def retried(traces: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in traces.read_text().splitlines()] if traces.exists() else []
    traces.unlink(missing_ok=True)
    return [line for line in lines if line.get("retried")]


async def check_rounds(
    connection: EnvConnection,
    engine: Engine,
    traces: Path,
    rounds: int,
    parts: dict[str, Callable[[], list[int]]],
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    sys.stdout.write(f"seed {seed}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_SERVER_URL", connection.mcp_url)
        patch.setenv("MCP_SERVER_TOKEN", connection.token)
        for number in range(rounds):
            assert all_ready(connection)
            part = list(parts)[number % len(parts)] if number < len(parts) else rng.choice(list(parts))
            finished = await killed_while_a_tool_is_called(engine, number, parts[part](), rng)
            outcome, losses = finished.result.outcome, retried(traces)
            sys.stdout.write(f"{number} {part}: {outcome} {finished.result.cause} {len(losses)}\n")
            if part == "engine":
                assert (outcome, finished.is_scored, losses) == (Outcome.provider, False, [])
            elif part in NO_EVIDENCE:
                assert outcome in NO_EVIDENCE[part] and losses == []
            else:
                assert [line["outcome"] for line in losses] == ["environment"]
                assert (outcome, finished.result.answer) == (Outcome.answered, "42")
                assert finished.result.tools.calls == 1, "of the second time alone"


@pytest.fixture(scope="module")
def contained() -> Iterator[EnvConnection]:
    need_docker()
    size = Size(1.0, 384 << 20)
    options = {"egress_hosts": ["example.org"], "servers": ("odd",), "wait": 120}
    yield up(ODD, name="faults", backend="docker", workers=1, size=size, **options)
    down("faults")


def health(connection: EnvConnection) -> dict[str, Any]:
    with urllib.request.urlopen(health_url(connection.mcp_url)) as response:
        content: dict[str, Any] = json.load(response)
    return content


def pid_in(part: str) -> list[int]:
    (one,) = (one for one in containers("faults") if one.name.endswith(part))
    return [one.attrs["State"]["Pid"]]


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_what_is_killed_in_containers_is_no_fault_of_an_episode(
    contained: EnvConnection, engine: Engine, traces: Path, rounds: int
) -> None:
    parts = {
        "worker": lambda: pid_in("worker-0"),
        "gateway": lambda: pid_in("gateway"),
        "proxy": lambda: pid_in("egress"),
        "engine": list[int],
    }
    await check_rounds(contained, engine, traces, rounds, parts)
    assert eventually(lambda: health(contained)["egress"]["status"] == "ok", 120), (
        "the engine starts it again"
    )


@pytest.fixture(scope="module")
def processes() -> Iterator[EnvConnection]:
    yield up(ODD, name="faults-here", backend="process", workers=2, servers=("odd",), wait=120)
    down("faults-here")


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_what_is_killed_among_processes_is_no_fault_of_an_episode_where_it_shows(
    processes: EnvConnection, engine: Engine, traces: Path, rounds: int
) -> None:
    def gateway() -> list[int]:
        record = find("faults-here")
        assert record is not None
        below = psutil.Process(record.handle["pid"]).children(recursive=True)
        return [one.pid for one in below if "aworld_train.serving.env_gateway" in one.cmdline()][:1]

    parts = {
        "all workers": lambda: [one.pid for one in workers("faults-here")],
        "gateway": gateway,
        "one of two workers": lambda: [workers("faults-here")[0].pid],
        "engine": list[int],
    }
    await check_rounds(processes, engine, traces, rounds, parts)
