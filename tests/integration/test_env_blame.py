"""Who is blamed for the loss of a worker: the session that used it up, or who killed it from outside."""

import asyncio
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from aworld_train.env import EnvConnection, down, up
from aworld_train.env.backend import Size
from aworld_train.rollout.outcome import EnvironmentLost, ToolsBroken
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import ODD, all_ready, containers, need_docker, workers
from tests.hostile import FILL, GREEDY, python

pytestmark = pytest.mark.timeout(300)
NAME = "blame"
MEMORY = 384 << 20


@pytest.fixture
def processes() -> Iterator[EnvConnection]:
    yield up(ODD, name=f"{NAME}-here", backend="process", workers=2, servers=("odd",), wait=120)
    down(f"{NAME}-here")


async def test_a_session_whose_worker_alone_ends_is_to_blame_and_another_one_goes_on(
    processes: EnvConnection,
) -> None:
    server = server_of(processes)
    async with ToolSession(server) as tools, ToolSession(server) as beside:
        assert (await beside.call("echo", {"text": "on"})).text == "on"
        server_pid = int((await tools.call("shell", {"command": "echo $PPID"})).text)
        (worker,) = set(psutil.Process(server_pid).parents()) & set(workers(f"{NAME}-here"))
        worker.kill()
        with pytest.raises(ToolsBroken):
            await tools.call("echo", {"text": "on"})
        assert (await beside.call("echo", {"text": "on"})).text == "on"


async def test_workers_that_are_lost_with_idle_ones_are_a_fault_of_the_environment(
    processes: EnvConnection,
) -> None:
    assert all_ready(processes)
    async with ToolSession(server_of(processes)) as tools:
        await tools.call("echo", {"text": "on"})
        waiting = asyncio.ensure_future(tools.call("wait", {"seconds": 60}))
        await asyncio.sleep(1.0)
        for one in workers(f"{NAME}-here"):
            one.kill()
        with pytest.raises(EnvironmentLost) as lost:
            await waiting
        assert not isinstance(lost.value, ToolsBroken)


@pytest.fixture(scope="module")
def blamed() -> Iterator[EnvConnection]:
    need_docker()
    yield up(ODD, name=NAME, backend="docker", workers=1, size=Size(1.0, MEMORY), servers=("odd",), wait=120)
    down(NAME)


def server_of(connection: EnvConnection) -> ToolServer:
    return ToolServer(connection.mcp_url, {"Authorization": f"Bearer {connection.token}"}, 60, 120)


async def test_a_session_that_fills_its_disks_has_its_worker_afterwards(blamed: EnvConnection) -> None:
    assert all_ready(blamed)
    async with ToolSession(server_of(blamed)) as tools:
        await tools.call("shell", {"command": FILL})
        assert (await tools.call("echo", {"text": "on"})).text == "on"


async def test_memory_that_runs_out_in_a_session_is_the_doing_of_that_session(blamed: EnvConnection) -> None:
    assert all_ready(blamed)
    async with ToolSession(server_of(blamed)) as tools:
        await tools.call("shell", {"command": "true"})
        try:
            for _ in range(3):
                await tools.call("shell", {"command": f"{FILL}; {python(GREEDY)}"})
            assert not (await tools.call("echo", {"text": "on"})).is_error
        except ToolsBroken:  # where the engine cannot keep tools from asking to be spared
            return


@pytest.mark.parametrize("part", ["worker-0", "gateway"])
async def test_a_part_that_is_killed_from_outside_is_a_fault_of_the_environment(
    blamed: EnvConnection, part: str
) -> None:
    assert all_ready(blamed)
    async with ToolSession(server_of(blamed)) as tools:
        await tools.call("echo", {"text": "on"})
        waiting = asyncio.ensure_future(tools.call("wait", {"seconds": 60}))
        await asyncio.sleep(1.0)
        (one,) = (one for one in containers(NAME) if one.name.endswith(part))
        os.kill(one.attrs["State"]["Pid"], signal.SIGKILL)
        with pytest.raises(EnvironmentLost) as lost:
            await waiting
        assert not isinstance(lost.value, ToolsBroken)
