"""How many workers an environment has where nobody says it."""

from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.env import backend as module

GIB = 1 << 30


def workers(sessions: int | None, *, each: int = 1) -> int:
    directory: Any = SimpleNamespace(manifest=SimpleNamespace(sessions_per_worker=each))
    return module.worker_count(directory, None, sessions)


@pytest.mark.parametrize(
    ("cores", "free", "sessions", "expected"),
    [
        (64, 900 * GIB, 128, 128),  # one for each episode
        (16, 120 * GIB, 128, 32),  # two a core
        (64, 24 * GIB, 128, 21),  # 600 MB each of half of the memory
        (1, 100_000_000, 128, 1),
        (16, 120 * GIB, 3, 3),
        (16, 120 * GIB, None, 4),
        (2, 120 * GIB, None, 2),
    ],
)
def test_there_are_as_many_workers_as_episodes_as_far_as_the_machine_goes(
    cores: int, free: int, sessions: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    assert workers(sessions) == expected
    assert workers(sessions, each=8) == 1
