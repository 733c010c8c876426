"""How the tests are shared out among processes (``--processes``, see ``parallel``)."""

from __future__ import annotations

import os

import pytest

from aworld_train import masking
from tests import parallel, properties, warm

properties.load_profile()

CHAINS = {
    # Makes the model that all training runs begin with; the next three need none.
    "agents": ("tests/e2e/test_agents.py", "tests/e2e/test_agent_forms.py"),
    # One engine for all, which a test stops and starts.
    "docker": (
        "tests/integration/test_env_docker.py",
        "tests/integration/test_env_chaos.py",
        "tests/integration/test_env_blame.py",
        "tests/integration/test_env_faults.py",
        "tests/integration/test_gaia_walk.py",
        "tests/integration/test_env_desktop.py",
        "tests/integration/test_env_sessions.py",
        "tests/integration/test_env_hostile.py",
        "tests/integration/test_attack_bar.py",
        "tests/integration/test_trainer_image.py",
    ),
    # One Python environment with all that the tools need.
    "tools": ("tests/integration/test_gaia_project.py",),
    # Installs what the agents above are trained with.
    "aworld": ("tests/integration/test_agent_aworld.py",),
    # Whole training runs; what several tests need is made by the first process that asks for it.
    "interruptions": (
        "tests/e2e/test_interruptions.py",
        "tests/e2e/test_store.py",
        "tests/e2e/test_trackers.py",
    ),
    "training": (
        "tests/e2e/test_tiny_model.py",
        "tests/e2e/test_training.py",
        "tests/e2e/test_sft.py",
        "tests/e2e/test_distill.py",
        "tests/e2e/test_journey.py",
        "tests/e2e/test_episode_weights.py",
    ),
    # Installs vLLM into an environment of its own.
    "vllm": ("tests/e2e/test_vllm.py", "tests/e2e/test_images.py"),
    # Jobs on clusters of this machine, and runs that are killed at every boundary.
    "ray": ("tests/e2e/test_ray.py",),
    "slurm": ("tests/e2e/test_slurm.py",),
    "trackers": ("tests/integration/test_trackers.py",),
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
_RANKS = {file: (rank, at) for rank, files in enumerate(CHAINS.values()) for at, file in enumerate(files)}
_CHAIN_OF = {file: chain for chain, files in CHAINS.items() for file in files}


@pytest.fixture(autouse=True)
def _nothing_is_masked_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's recipes took from the environment does not mask the messages of another."""
    monkeypatch.setattr(masking, "_references", {})


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes")


def pytest_configure(config: pytest.Config) -> None:
    """Before the tests are imported."""
    if config.getoption("processes") > 1:
        # Threads that compute together wait for each other by spinning, and beside as many processes they do little
        # else. What tests start chooses its own number of threads.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run chains side by side, the long ones first; alone, every test stays in its place."""
    count = session.config.getoption("processes")
    if count < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    chains: dict[str, list[pytest.Item]] = {}
    for item in sorted(session.items, key=lambda item: _RANKS.get(_file(item.nodeid), (len(CHAINS), 0))):
        file = _file(item.nodeid)
        chains.setdefault(_CHAIN_OF.get(file, file), []).append(item)
    warm.start(warm.PROGRAMS, warm.VERL, warm.LIBRARIES)
    parallel.run(session, list(chains.values()), count)
    return True
