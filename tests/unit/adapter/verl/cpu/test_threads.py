"""Processes that compute at the same time share the cores that they may use."""

import os

import pytest

from aworld_train.adapter.verl.cpu import threads_per_process


@pytest.mark.parametrize(("processes", "threads"), [(0, 6), (1, 6), (2, 3), (4, 1), (7, 1)])
def test_each_process_has_its_part_of_the_cores_and_at_least_one(
    processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0: set(range(6))}[pid])
    assert threads_per_process(processes) == threads
