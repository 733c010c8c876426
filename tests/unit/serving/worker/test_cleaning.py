"""Cleaning a worker: in an order in which nothing of a session can come back, and with the failure of each part."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from aworld_train.serving.worker import cleaning
from aworld_train.serving.worker.cleaning import ContainerCleaner, ProcessCleaner
from aworld_train.serving.worker.wipe import NotClean, SharedResources


class Parts:
    """In place of a spawner and a proxy's port: what they were asked for."""

    def __init__(self, fails: bool = False):
        self.steps: list[str] = []
        self._fails = fails

    async def wipe(self) -> None:
        self.steps.append("wiped by the spawner")
        if self._fails:
            raise NotClean("a file is left")

    async def end_connections(self) -> None:
        self.steps.append("connections ended")

    async def wait_until_idle(self) -> None:
        self.steps.append("spawner is idle")


async def test_a_container_is_wiped_by_its_spawner_before_the_connections_of_its_tools_end() -> None:
    parts = cast(Any, Parts())
    await ContainerCleaner(parts, parts).clean()
    await ContainerCleaner(parts, None).clean()
    assert parts.steps == ["wiped by the spawner", "connections ended", "wiped by the spawner"]
    parts = cast(Any, Parts(fails=True))
    with pytest.raises(NotClean, match="a file is left"):
        await ContainerCleaner(parts, parts).clean()
    assert parts.steps == ["wiped by the spawner"]


async def test_a_process_is_wiped_in_a_thread_of_its_own_once_nothing_can_block_its_spawner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, resources = cast(Any, Parts()), SharedResources((tmp_path,), frozenset({7}))
    threads: list[threading.Thread] = []

    def noted(step: str) -> Any:
        def work(shared: SharedResources) -> None:
            assert shared is resources
            threads.append(threading.current_thread())
            parts.steps.append(step)

        return work

    monkeypatch.setattr(cleaning, "end_processes", noted("processes ended"))
    monkeypatch.setattr(cleaning, "wipe", noted("wiped"))
    before = set(threading.enumerate())
    cleaner = ProcessCleaner(resources, parts, tmp_path / "socket")
    (thread,) = set(threading.enumerate()) - before  # before a session can have used up all threads
    (tmp_path / "socket").touch()
    await cleaner.clean()
    assert (parts.steps, threads) == (["processes ended", "spawner is idle", "wiped"], [thread] * 2)
    (tmp_path / "other").touch()
    with pytest.raises(NotClean, match="there is another file in the folder of the socket"):
        await cleaner.clean()
