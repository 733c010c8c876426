"""The tool environment of a run: the run starts it or finds a running one, and watches it."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aworld_train import env
from aworld_train.errors import EnvironmentFailure, RewardError
from aworld_train.interruptible import run_interruptible
from aworld_train.recipe.env_notes import call_time_note, queue_note, server_limits
from aworld_train.recipe.reward_checks import runs_code
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import CassetteMode, EnvBackend, Recipe
from aworld_train.reward.code_tests import check_code_tests
from aworld_train.rollout.cassette import RecordedTools, open_cassette, server_identity
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_selection import ToolSelection
from aworld_train.rollout.tools import ToolServer, tool_headers

_PROBE_SECONDS = 2.0
_UNUSED_URL = "http://127.0.0.1:9/mcp"  # of a local environment in replays, where no call is made
_MAX_NAME_CHARS = 50  # of a recipe's name in the environment's name, which may have at most 63 characters


@dataclass(frozen=True)
class RunEnvironment:
    """The address and token of the tools; ``replayed`` if none has to run: a cassette answers, or there are none."""

    url: str
    token: str = field(repr=False)
    replayed: bool = False
    origin: Mapping[str, str | None] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        return {"MCP_SERVER_URL": self.url, "MCP_SERVER_TOKEN": self.token}

    def answers(self) -> bool:
        """Whether it answers right now; one that a cassette replaces always does."""
        return self.replayed or env.probe(env.health_url(self.url), _PROBE_SECONDS)


NO_TOOLS = RunEnvironment(_UNUSED_URL, "", replayed=True)


@contextmanager
def run_environment(
    recipe: Recipe,
    report_progress: Callable[[str], None] = lambda _: None,
    scorers: Iterable[str | None] = (),
    host: str = "127.0.0.1",
    sessions: int | None = None,
) -> Iterator[RunEnvironment]:
    """The recipe's environment: started for this block (`env.docker_dir`, `env.mcp_servers`), or that of `env.url`.

    ``scorers`` are those that tasks name, ``host`` is where a started one listens, ``sessions`` how many episodes there
    are at a time (by default those of a training step).
    """
    env.clean_leftovers()
    sessions = sessions or recipe.trainer.batch_size * recipe.rollout.n
    with _tools(recipe, report_progress, scorers, host, sessions) as environment:
        if runs_code(recipe, scorers):
            settings = reward_settings(recipe).tools
            check_code_tests(settings, recipe.env.ready_timeout, environment.url, environment.token)
        check_selection(recipe, environment)
        yield environment


def check_selection(recipe: Recipe, environment: RunEnvironment) -> None:
    selection = ToolSelection.read(asdict(recipe.agent.tools))
    if recipe.env.backend is not EnvBackend.none and (selection.include or selection.exclude):
        selection.check([tool["function"]["name"] for tool in tools_of(recipe, environment)])


def tools_of(recipe: Recipe, environment: RunEnvironment) -> list[dict[str, Any]]:
    section = recipe.env
    headers = tool_headers(environment.token, section.servers)
    server = ToolServer(environment.url, headers, connect_timeout=section.ready_timeout)
    cassette = open_cassette(section.cassette.path, section.cassette.mode.value, section.cassette.rules)

    async def listed() -> list[dict[str, Any]]:
        async with RecordedTools(server, cassette) as tools:
            return await tools.all_schemas()

    try:
        return run_interruptible(listed())
    except EnvironmentLost as lost:
        raise EnvironmentFailure(f"The tools could not be listed: {lost}.") from lost


@contextmanager
def _tools(
    recipe: Recipe,
    report_progress: Callable[[str], None],
    scorers: Iterable[str | None],
    host: str,
    sessions: int,
) -> Iterator[RunEnvironment]:
    """The environment, before it is known whether it can run the code of answers."""
    section = recipe.env
    if section.backend is EnvBackend.none:
        if runs_code(recipe, scorers):
            raise RewardError(
                "The scorer code_tests runs answers in the tool environment, and env.backend is none. Name an "
                "environment that runs Python, as env.docker_dir=gaia-mcp-server."
            )
        yield NO_TOOLS
        return
    if section.cassette.mode is CassetteMode.replay:
        yield _replayed(recipe)
        return
    if section.started_from is not None:
        for note in (call_time_note(recipe, server_limits(recipe)), queue_note(recipe, sessions)):
            if note:
                report_progress(note)
        scoring_workers = section.scoring_workers
        if scoring_workers is None:
            scoring_workers = int(runs_code(recipe, scorers))
        settings = env.EnvSettings(
            name=f"{recipe.name[:_MAX_NAME_CHARS]}-{os.getpid()}",
            backend=section.backend.value,
            host=host,
            workers=section.workers,
            sessions=sessions,
            servers=tuple(section.servers),
            env_file=Path(section.env_file).expanduser() if section.env_file else None,
            data=Path(section.data) if section.data else None,
            egress=section.egress.value if section.egress else None,
            egress_hosts=tuple(section.egress_hosts),
            scoring_workers=scoring_workers,
            runtime=section.runtime or "",
            limits={"queue_seconds": section.queue_timeout},
            wait=section.ready_timeout,
        )
        connection = env.up(
            section.started_from, settings, owner_pid=os.getpid(), report_progress=report_progress
        )
        try:
            origin = {
                "directory": section.docker_dir or "env.mcp_servers",
                "backend": connection.backend,
                "image": connection.image,
            }
            yield RunEnvironment(connection.mcp_url, connection.token, origin=origin)
        finally:
            env.down(connection.name)
        return
    environment = find_environment(recipe)
    check = env.examine(environment.url, environment.token, {}, section.ready_timeout, report_progress)
    if note := call_time_note(recipe, check.limits):
        report_progress(note)
    yield environment


def _replayed(recipe: Recipe) -> RunEnvironment:
    url = recipe.env.url or env.connection_settings().get("MCP_SERVER_URL") or _UNUSED_URL
    section = recipe.env.cassette
    cassette = open_cassette(section.path, section.mode.value, section.rules)
    assert cassette is not None
    cassette.tools(server_identity(url, tool_headers(None, recipe.env.servers)))
    return RunEnvironment(url, "", replayed=True)


def find_environment(recipe: Recipe) -> RunEnvironment:
    settings = env.connection_settings()
    url = recipe.env.url or settings.get("MCP_SERVER_URL")
    if not url:
        raise EnvironmentFailure(
            "The recipe names no tool environment. Set env.docker_dir to start one with the run (for instance "
            "env.docker_dir=calculator-mcp-server), or env.url, or MCP_SERVER_URL and MCP_SERVER_TOKEN; for an agent "
            "without tools env.backend=none."
        )
    return RunEnvironment(url, recipe.env.token or settings.get("MCP_SERVER_TOKEN", ""))


class HealthWatch:
    """Probes the environment every two seconds and reports when it has not answered for ``timeout`` seconds."""

    def __init__(self, environment: RunEnvironment, timeout: float):
        self._url = env.health_url(environment.url)
        self._environment = environment
        self._timeout = timeout
        self._next_probe = 0.0
        self._silent_since: float | None = None

    def failure_reason(self) -> str | None:
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + _PROBE_SECONDS
            if self._environment.answers():
                self._silent_since = None
            elif self._silent_since is None:
                self._silent_since = now
        if self._silent_since is None or now - self._silent_since < self._timeout:
            return None
        return (
            f"The tool environment at {self._url} has not answered for {now - self._silent_since:.0f} seconds "
            f"(env.recovery_timeout is {self._timeout:g}). No unfinished episode was trained on. Start the "
            "environment again and continue with --resume."
        )

    @property
    def silent(self) -> bool:
        return self._silent_since is not None
