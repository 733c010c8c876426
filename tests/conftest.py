"""How the tests are shared out among processes, where pytest-xdist runs several (``-n``).

A file is run by one process, from its beginning to its end, so what it makes for its tests is made once. Files that use
the same things make a chain, which is run by one process too. Long chains are begun first. A failure is told when it
happens.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from aworld_train import masking
from tests import properties

properties.load_profile()

CHAINS = {
    # Makes the model that all training runs begin with; the next three need none.
    "agents": ("tests/e2e/test_agents.py", "tests/e2e/test_agent_forms.py"),
    # One engine for all, which a test stops and starts.
    "docker": (
        "tests/integration/test_env_docker.py",
        "tests/integration/test_gaia_walk.py",
        "tests/integration/test_env_desktop.py",
        "tests/integration/test_env_sessions.py",
        "tests/integration/test_env_hostile.py",
    ),
    # One Python environment with all that the tools need.
    "tools": ("tests/integration/test_gaia_project.py",),
    # Installs what the agents above are trained with.
    "aworld": ("tests/integration/test_agent_aworld.py",),
    # Whole training runs; what several tests need is made by the first process that asks for it.
    "interruptions": ("tests/e2e/test_interruptions.py",),
    "training": ("tests/e2e/test_tiny_model.py", "tests/e2e/test_training.py"),
    # Installs vLLM into an environment of its own.
    "vllm": ("tests/e2e/test_vllm.py",),
    # Jobs on clusters of this machine, and runs that are killed at every boundary.
    "ray": ("tests/e2e/test_ray.py",),
    "slurm": ("tests/e2e/test_slurm.py",),
    "store": ("tests/e2e/test_store.py",),
    "trackers": ("tests/integration/test_trackers.py", "tests/e2e/test_trackers.py"),
    "ports": ("tests/e2e/test_ports.py",),
    "gaia": (
        "tests/integration/test_gaia_tools.py",
        "tests/integration/test_gaia_run.py",
        "tests/integration/test_gaia_broken.py",
    ),
    "boundaries": ("tests/integration/test_second_framework.py",),
    "environments": ("tests/integration/test_env_process.py",),
}
"""The chains of several files, and the long ones, in the order in which they are begun."""
_MAX_REASON_CHARS = 400  # of its begin, and as many of its end, where programs say what went wrong
_RANKS = {file: (rank, at) for rank, files in enumerate(CHAINS.values()) for at, file in enumerate(files)}
_CHAIN_OF = {file: chain for chain, files in CHAINS.items() for file in files}


if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads that compute together wait for each other by spinning, and beside as many processes they do little else.
    # What tests start chooses its own number of threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def _nothing_is_masked_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's recipes took from the environment does not mask the messages of another."""
    monkeypatch.setattr(masking, "_references", {})


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a process of several, the long chains come first; alone, everything stays in its order."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _RANKS.get(_file(item.nodeid), (len(CHAINS), 0)))


class FailuresAtOnce:
    """Says of each failed test its name and reason when it fails, for a run that is cut off has no summary."""

    def __init__(self, terminal: Any):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else str(report.longrepr)
            if len(reason) > 2 * _MAX_REASON_CHARS:
                reason = f"{reason[:_MAX_REASON_CHARS]}\n[…]\n{reason[-_MAX_REASON_CHARS:]}"
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}): {reason}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where several processes run the tests, the one that shares them out tells of failures."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and session.config.getoption("numprocesses", None):
        session.config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out chains instead of single tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Chains(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _CHAIN_OF.get(_file(nodeid), _file(nodeid))

    config.option.loadscopereorder = False
    return Chains(config, log)
