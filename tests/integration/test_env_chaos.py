"""Parts of an environment in containers that somebody removes or stops, by hand, at each moment of its life.

Whatever was removed, the environment is repaired or the loss is named, and one command is enough: `up` or `down`.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from docker.errors import APIError
from docker.models.containers import Container

import docker
from aworld_train.cli.env import config_command
from aworld_train.env import EnvConnection, down, down_orphans, lifecycle, status, up
from aworld_train.env.backend import Size
from aworld_train.env.containers import DockerBackend
from aworld_train.errors import EnvironmentFailure
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import ODD, call, containers, need_docker, parts_on_engine, session

pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(300),
]

NAME = "chaos"


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    need_docker()
    yield
    down(NAME)


def start() -> EnvConnection:
    size = Size(1.0, 512 << 20)
    return up(ODD, name=NAME, backend="docker", workers=1, size=size, servers=("odd",), wait=60)


def part_of(name: str) -> Container:
    (part,) = [one for one in containers(NAME) if name in one.name]
    return part


def remove_gateway() -> None:
    part_of("-gateway").remove(force=True)


def remove_worker() -> None:
    part_of("-worker-0").remove(force=True)


def stop_worker() -> None:
    part_of("-worker-0").stop(timeout=0)


def remove_network() -> None:
    network = docker.from_env().networks.get(f"aworld-{NAME}")
    for one in containers(NAME):
        if network.name in one.attrs["NetworkSettings"]["Networks"]:
            network.disconnect(one, force=True)
    network.remove()


def remove_volume() -> None:
    docker.from_env().volumes.get(f"aworld-{NAME}-0").remove()


def remove_containers() -> None:
    for one in containers(NAME):
        one.remove(force=True)


def remove_all_but_volumes() -> None:
    remove_containers()
    remove_network()


def remove_orphans_from_another_state_folder() -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWORLD_TRAIN_STATE", folder)
        assert NAME not in down_orphans()


# While it starts


@pytest.mark.parametrize(
    ("step", "remove", "failure"),
    [
        ("_volume", remove_network, "network aworld-chaos not found"),
        ("_volume", remove_volume, "volume-0 of 'chaos' was removed while it was starting"),
        ("_run_worker", remove_worker, "worker-0 of 'chaos' was removed while it was starting"),
        ("_run_worker", remove_orphans_from_another_state_folder, None),
        ("_run_gateway", remove_gateway, "'chaos' ended while it was starting"),
        ("_run_gateway", remove_network, "network of 'chaos' was removed while it was starting"),
    ],
)
def test_a_start_that_loses_a_part_says_so_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, step: str, remove: Callable[[], None], failure: str | None
) -> None:
    whole_step = getattr(DockerBackend, step)

    def step_and_removal(*arguments: Any) -> Any:
        result = whole_step(*arguments)
        remove()
        return result

    monkeypatch.setattr(DockerBackend, step, step_and_removal)
    if failure is None:
        start()
        assert down(NAME)
    else:
        with pytest.raises(EnvironmentFailure, match=failure):
            start()
    assert parts_on_engine(NAME) == []


# While a tool is called


@pytest.mark.parametrize(
    ("remove", "missing", "keeps_token"),
    [
        (remove_gateway, ["gateway"], False),
        (remove_worker, ["worker-0"], True),
        (stop_worker, ["worker-0"], True),
        (remove_network, ["network"], True),
    ],
)
async def test_a_call_whose_environment_loses_a_part_is_lost_and_the_next_start_repairs_it(
    remove: Callable[[], None], missing: list[str], keeps_token: bool
) -> None:
    first = await asyncio.to_thread(start)
    server = ToolServer(first.mcp_url, {"Authorization": f"Bearer {first.token}"})
    with pytest.raises(EnvironmentLost):
        async with ToolSession(server) as tools:
            await tools.call("echo", {"text": "on"})
            waiting = asyncio.ensure_future(tools.call("wait", {"seconds": 60}))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(remove)
            await waiting
    (now,) = await asyncio.to_thread(status, NAME)
    assert (now.state in ("up", "starting"), now.missing) == (False, missing)
    repaired = await asyncio.to_thread(start)
    assert (repaired.token == first.token, repaired.mcp_url) == (keeps_token, first.mcp_url)
    async with session(repaired) as opened:
        assert await call(opened, "echo", text="on") == "on"


# While it ends


@pytest.mark.parametrize(
    "remove",
    [remove_gateway, remove_worker, remove_network, remove_containers, remove_all_but_volumes],
)
def test_what_is_left_of_an_environment_is_removed_by_one_command(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[], None]
) -> None:
    start_untested(monkeypatch)
    remove()
    assert DockerBackend().exists(NAME)
    down(NAME)
    assert parts_on_engine(NAME) == []


def test_an_environment_without_its_gateway_has_no_connection_to_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_untested(monkeypatch)
    remove_gateway()
    with pytest.raises(EnvironmentFailure, match="gateway of 'chaos' was removed, and its token with it"):
        config_command(NAME)


def test_an_environment_that_is_removed_by_several_at_once_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    start_untested(monkeypatch)
    with ThreadPoolExecutor() as threads:
        removals = [threads.submit(DockerBackend().remove, NAME) for _ in range(3)]
        down(NAME)
        assert [removal.result() for removal in removals] == [None] * 3
    assert parts_on_engine(NAME) == []


def test_a_volume_in_use_cannot_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    start_untested(monkeypatch)
    with pytest.raises(APIError, match="volume is in use"):
        remove_volume()


def start_untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine start everything, and do not wait for it."""
    monkeypatch.setattr(lifecycle, "_start", lambda backend, plan, *_: backend.start(plan).connection)
    start()
