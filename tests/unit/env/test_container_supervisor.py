"""Containers go with their owner, and their engine is not asked all the time whether they are still there."""

import subprocess
import sys
import time
from threading import Thread

import pytest

from aworld_train.env import container_supervisor
from aworld_train.process_supervisor import ProcessIdentity
from tests.environments import eventually

ENVIRONMENT = "supervised"


def test_the_end_of_the_owner_is_noticed_without_asking_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Engine:
        """Notes what it is asked."""

        def exists(self, _: str) -> bool:
            calls.append("exists")
            return True

        def remove(self, name: str) -> None:
            calls.append(f"remove {name}")

    owner = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(container_supervisor, "DockerBackend", Engine)
    monkeypatch.setattr(sys, "argv", ["program", ENVIRONMENT, str(ProcessIdentity.of(owner.pid))])
    supervisor = Thread(target=container_supervisor.main, daemon=True)
    supervisor.start()
    assert eventually(lambda: calls)
    time.sleep(1.5)
    assert calls == ["exists"]
    owner.kill()
    owner.wait()
    supervisor.join(60)
    assert calls == ["exists", "exists", f"remove {ENVIRONMENT}"]
