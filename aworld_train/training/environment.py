"""The tool environment of a run: started with it if the recipe says so, found otherwise, and watched all the time."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aworld_train import env
from aworld_train.errors import EnvironmentFailure
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import CassetteMode, Recipe
from aworld_train.reward.scorers import CODE_TESTS
from aworld_train.rollout.cassette import open_cassette, server_identity

_PROBE_SECONDS = 2.0
_NOBODY = "http://127.0.0.1:9/mcp"  # a local environment that is never asked
_NAME_LENGTH = 50  # of a recipe's name in that of its environment, which may have 63 characters


@dataclass(frozen=True)
class RunEnvironment:
    """Where the tools are; the token is kept out of what is shown or written.

    Attributes:
        url: MCP endpoint.
        token: Its bearer token.
        replayed: Whether tool calls are answered from a cassette, so that nobody has to be there.
    """

    url: str
    token: str = field(repr=False)
    replayed: bool = False

    def variables(self) -> dict[str, str]:
        """The environment variables by which agents find it."""
        return {"MCP_SERVER_URL": self.url, "MCP_SERVER_TOKEN": self.token}


@contextmanager
def run_environment(
    recipe: Recipe, report_progress: Callable[[str], None] = lambda _: None, scorers: Iterable[str | None] = ()
) -> Iterator[RunEnvironment]:
    """The recipe's environment: `env.docker_dir` starts one that ends with this process, else `env.url` is used.

    Args:
        recipe: What is run.
        report_progress: Called with a line about each step of starting it.
        scorers: What tasks name beside the recipe: some need workers of their own.

    Raises:
        EnvironmentFailure: it cannot be started, none is named, or the named one does not answer.
    """
    section = recipe.env
    if section.cassette.mode is CassetteMode.replay:
        yield _replayed(recipe)
        return
    if section.docker_dir is not None:
        connection = env.up(
            section.docker_dir,
            name=f"{recipe.name[:_NAME_LENGTH]}-{os.getpid()}",
            backend=section.backend.value,
            workers=section.workers,
            servers=tuple(section.servers),
            env_file=Path(section.env_file).expanduser() if section.env_file else None,
            data=Path(section.data) if section.data else None,
            egress=section.egress.value if section.egress else None,
            egress_hosts=tuple(section.egress_hosts),
            scoring_workers=_scoring_workers(recipe, scorers),
            runtime=section.runtime or "",
            owner_pid=os.getpid(),
            report_progress=report_progress,
        )
        try:
            yield RunEnvironment(connection.mcp_url, connection.token)
        finally:
            env.down(connection.name)
        return
    environment = find_environment(recipe)
    env.check_tools(environment.url, environment.token)
    yield environment


def _scoring_workers(recipe: Recipe, scorers: Iterable[str | None]) -> int:
    """How many workers are for scoring: as the recipe says, or one where answers are code that is run."""
    if recipe.env.scoring_workers is not None:
        return recipe.env.scoring_workers
    return int(not recipe.reward.function and CODE_TESTS in reward_settings(recipe).scorers_asked(scorers))


def _replayed(recipe: Recipe) -> RunEnvironment:
    """No environment, and a cassette that can stand for it.

    Raises:
        CassetteError: it is not there, cannot be read, or is of another environment.
    """
    url = recipe.env.url or env.connection_settings().get("MCP_SERVER_URL") or _NOBODY
    section = recipe.env.cassette
    cassette = open_cassette(section.path, section.mode.value, section.rules)
    assert cassette is not None
    cassette.tools(server_identity(url, {"MCP_SERVERS": ",".join(recipe.env.servers)}))
    return RunEnvironment(url, "", replayed=True)


def find_environment(recipe: Recipe) -> RunEnvironment:
    """The environment that is up already, as the recipe or the environment variables name it.

    Raises:
        EnvironmentFailure: none is named.
    """
    settings = env.connection_settings()
    url = recipe.env.url or settings.get("MCP_SERVER_URL")
    if not url:
        raise EnvironmentFailure(
            "The recipe names no tool environment. Set env.docker_dir to start one with the run (for instance "
            "env.docker_dir=calculator-mcp-server), or env.url, or MCP_SERVER_URL and MCP_SERVER_TOKEN."
        )
    return RunEnvironment(url, recipe.env.token or settings.get("MCP_SERVER_TOKEN", ""))


class HealthWatch:
    """Looks at the environment every two seconds and says when it has not answered for too long."""

    def __init__(self, environment: RunEnvironment, patience: float):
        self._url = env.health_url(environment.url)
        self._replayed = environment.replayed
        self._patience = patience
        self._next = 0.0
        self._silent_since: float | None = None
        self.interruptions = 0

    def lost(self) -> str | None:
        """A sentence if the environment has been silent for longer than the recipe allows, else None."""
        now = time.monotonic()
        if now >= self._next and not self._replayed:
            self._next = now + _PROBE_SECONDS
            if env.probe(self._url, _PROBE_SECONDS):
                self._silent_since = None
            elif self._silent_since is None:
                self._silent_since = now
                self.interruptions += 1
        if self._silent_since is None or now - self._silent_since < self._patience:
            return None
        return (
            f"The tool environment at {self._url} has not answered for {now - self._silent_since:.0f} seconds "
            f"(env.recovery_timeout is {self._patience:g}). Nothing was trained on what it left undone. Bring it back "
            "and go on with --resume."
        )

    def answers(self) -> bool:
        """Whether the environment answers right now."""
        return self._replayed or env.probe(self._url, _PROBE_SECONDS)

    @property
    def silent(self) -> bool:
        """Whether the environment did not answer when it was last looked at."""
        return self._silent_since is not None
