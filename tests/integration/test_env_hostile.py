"""Sessions that attack their worker, in containers: those beside and after them work, and see nothing of them."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from mcp import ClientSession

from aworld_train.env import EnvConnection, down, up
from aworld_train.env.backend import Size
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings, ToolSettings
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import ODD, ODD_OF_CLIENT, all_ready, call, containers, need_docker, session
from tests.hostile import (
    DESCRIPTORS_IN_FLIGHT,
    HOLD,
    HOSTILE,
    INOTIFY,
    check_innocent,
    impostor_rounds,
    python,
)
from tests.properties import part_of

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(900),
]

WORKERS = 4
SESSIONS = {"directory": part_of(800), "file of a client": 100}  # of a file, each starts a Python of its own
AT_ONCE = 32
WARM = 50
NAME = "hostile"


@pytest.fixture(
    scope="module",
    params=["directory", pytest.param("file of a client", marks=pytest.mark.slow)],
)
def hostile(state: None, request: pytest.FixtureRequest) -> Iterator[EnvConnection]:
    """Four small workers with a shell."""
    need_docker()
    limits = {"vanish_seconds": 2.0}
    small = Size(cpus=1.0, memory=512 << 20)
    yield up(
        ODD if request.param == "directory" else ODD_OF_CLIENT,
        name=NAME,
        backend="docker",
        workers=WORKERS,
        scoring_workers=1,
        size=small,
        limits=limits,
        wait=120,
    )
    down(NAME)


def server_of(connection: EnvConnection) -> ToolServer:
    headers = {"Authorization": f"Bearer {connection.token}"}
    return ToolServer(connection.mcp_url, headers, call_timeout=60, connect_timeout=300)


async def shell(tools: ToolSession, command: str) -> str:
    return (await tools.call("shell", {"command": command})).text


def started() -> dict[str, str]:
    """When each container was started."""
    return {str(one.name): str(one.attrs["State"]["StartedAt"]) for one in containers(NAME)}


def memory_of_gateway() -> int:
    """Bytes that its processes use, without what the kernel caches for them."""
    (gateway,) = (one for one in containers(NAME) if one.name.endswith("gateway"))
    stats = gateway.stats(stream=False)["memory_stats"]
    caches = stats["stats"].get("inactive_file", stats["stats"].get("total_inactive_file", 0))
    return int(stats["usage"]) - int(caches)


async def test_no_session_is_answered_by_what_a_tool_put_in_its_workers_place(hostile: EnvConnection) -> None:
    before = started()
    await impostor_rounds(server_of(hostile), shell, rounds=part_of(200), seed=0, at_once=2 * WORKERS)
    assert all_ready(hostile)
    assert started() == before


async def test_no_verdict_on_an_answer_is_forged_by_what_agents_did(
    hostile: EnvConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_TOKEN", hostile.token)
    run = RewardSettings(tools=ToolSettings(hostile.mcp_url, servers=("odd",)), timeout=120.0)
    truth = json.dumps({"tests": "assert add(1, 2) == 3"})

    async def value_of(answer: str) -> float | None:
        """The verdict; an answer is asked about again where a busy machine took longer than the server may."""
        text = f"<answer>{answer}</answer>"
        while True:
            scored = await score(text, ground_truth=truth, scorer="code_tests", settings=run)
            if scored.cause is None:
                return scored.score
            assert "odd did not answer within 8 seconds" in scored.cause

    async with asyncio.TaskGroup() as group:
        group.create_task(impostor_rounds(server_of(hostile), shell, rounds=20, seed=2, at_once=WORKERS))
        assert await value_of("def add(a, b): return a + b") == 1.0
        rounds = part_of(80)
        wrong = [await value_of(f"this is not even python ( {number}") for number in range(rounds)]
        assert wrong == [0.0] * rounds


async def test_innocent_sessions_work_among_hostile_ones(
    hostile: EnvConnection, request: pytest.FixtureRequest
) -> None:
    server, sessions = server_of(hostile), SESSIONS[request.node.callspec.params["hostile"]]
    rng = random.Random(0)
    attacks = [rng.choice([*HOSTILE.values(), None, None, None]) for _ in range(sessions)]
    assert all_ready(hostile)
    before, at_once = started(), asyncio.Semaphore(AT_ONCE)

    async def play(number: int, attack: str | None) -> int:
        async with at_once, ToolSession(server) as tools:
            if attack is None:
                await check_innocent(tools, shell, number)
                return 1
            await shell(tools, "true")  # a worker of its own is waited for without a limit
            with suppress(EnvironmentLost, TimeoutError):
                async with asyncio.timeout(5):
                    await shell(tools, attack)
            return 0

    numbered = list(enumerate(attacks))
    played = await asyncio.gather(*(play(*one) for one in numbered[:WARM]))
    memory = await asyncio.to_thread(memory_of_gateway)
    played += await asyncio.gather(*(play(*one) for one in numbered[WARM:]))
    assert sum(played) == attacks.count(None) > sessions / 5
    assert all_ready(hostile)
    # A session that is kept takes more than 20 kB.
    grown = await asyncio.to_thread(memory_of_gateway) - memory
    assert grown < (sessions - WARM) * 10_000, f"the gateway grew by {grown >> 10} KB"
    assert started() == before, "a worker had to be started anew"


@pytest.mark.parametrize("flood", [DESCRIPTORS_IN_FLIGHT, INOTIFY], ids=["descriptors in flight", "inotify"])
async def test_what_a_kernel_counts_by_user_is_used_up_for_one_worker_alone(
    hostile: EnvConnection, flood: str
) -> None:
    async with session(hostile) as greedy, session(hostile) as other:

        async def max_processes(opened: ClientSession) -> int:
            return int((await call(opened, "shell", command=python(flood))).split()[-1])

        usual = await max_processes(other)
        # It has all that there is before anything else of its worker asks for a part of it.
        await call(
            greedy,
            "shell",
            command=f"setsid -f {python(flood + HOLD)} >flood 2>&1; until [ -s flood ]; do sleep 0.1; done",
        )
        assert await max_processes(greedy) < usual / 4
        assert await max_processes(other) == usual
