"""Environments that several tests use: started once per backend, in a state folder of their own."""

from collections.abc import Iterator

import pytest

from aworld_train.env import EnvConnection, down, status, up
from tests.environments import ODD, need_docker


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written where the user's own environments are written down, and nothing stays up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWORLD_TRAIN_STATE", str(tmp_path_factory.mktemp("state")))
        yield
        # Containers are the engine's, and may be others': the tests that start them end them.
        for one in status():
            if one.backend == "process":
                down(one.name)


@pytest.fixture(scope="session", params=["process", "docker"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    if request.param == "docker":
        need_docker()
    return str(request.param)


@pytest.fixture(scope="session")
def odd(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvConnection]:
    """Four workers with tools that misbehave."""
    keys = tmp_path_factory.mktemp("keys") / "env"
    keys.write_text("BASE=half-a-key\nOTHER_KEY=${BASE}-and-the-other\nUNUSED=never-seen\n")
    limits = {"vanish_seconds": 3.0}
    yield up(ODD, name=f"odd-{backend}", backend=backend, workers=4, env_file=keys, limits=limits, wait=120)
    down(f"odd-{backend}")
