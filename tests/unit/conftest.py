"""Fixtures of the tests that play episodes; what they need is imported when one is asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def _shared_calculator() -> Iterator[Any]:
    from tests.tool_servers import JSON_CALCULATOR, ServerProcess

    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


@pytest.fixture
def calculator(_shared_calculator: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A calculator that agents in this process find."""
    from tests.agent_loops import known_to_agents

    return known_to_agents(_shared_calculator, monkeypatch)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A calculator for one test, which may kill it."""
    from aworld_train.adapter.episodes import player
    from tests.agent_loops import known_to_agents
    from tests.tool_servers import JSON_CALCULATOR, ServerProcess

    monkeypatch.setattr(player, "_SUPERVISOR_SECONDS", 0.0)
    server = ServerProcess(JSON_CALCULATOR)
    yield known_to_agents(server, monkeypatch)
    server.kill()


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder, in which episodes leave their lines."""
    from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE

    (tmp_path / "traces").mkdir()
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    return tmp_path
