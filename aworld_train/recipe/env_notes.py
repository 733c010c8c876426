"""What a user should know about a recipe's tools: how long episodes wait for a worker, and how long calls may take.

All of ``env`` is imported only where it is needed, because most recipes' checks do not need it.
"""

from collections.abc import Mapping
from math import ceil

from aworld_train.errors import AworldTrainError
from aworld_train.recipe.schema import CassetteMode, EnvBackend, Recipe


def queue_note(recipe: Recipe, episodes: int | None = None) -> str | None:
    """A sentence on the queue on this machine; None where each episode has a worker at once."""
    section = recipe.env
    if (
        section.started_from is None
        or section.backend is EnvBackend.none
        or section.cassette.mode is CassetteMode.replay
    ):
        return None
    from aworld_train.env.backend import worker_count
    from aworld_train.env.directory import find_directory

    episodes = episodes or recipe.trainer.batch_size * recipe.rollout.n
    try:
        directory = find_directory(section.started_from)
        workers = worker_count(directory, section.workers, episodes)
    except AworldTrainError:
        return None  # reported where the environment is started
    before = ceil(episodes / workers) - 1
    if directory.manifest.sessions_per_worker > 1 or not before:
        return None
    longest = before * recipe.agent.episode_timeout
    text = (
        f"{episodes} episodes at a time share {workers} tool workers on this machine: the last wait for {before} "
        f"other{'s' * (before > 1)}, {longest:g} seconds at most (agent.episode_timeout)"
    )
    if longest <= section.queue_timeout:
        return f"{text}."
    return (
        f"{text}, which is longer than env.queue_timeout ({section.queue_timeout:g}): some may end without a worker, "
        "and are then dropped. Raise it or env.workers, or give the environment more cores and memory."
    )


_MAX_NAMED = 3


def server_limits(recipe: Recipe) -> dict[str, float]:
    """Seconds that a call may take, by tool server of the directory that the recipe starts; empty without one."""
    if recipe.env.started_from is None:
        return {}
    from aworld_train.env.directory import find_directory

    try:
        servers = find_directory(recipe.env.started_from).manifest.servers
    except AworldTrainError:
        return {}  # reported where the environment is started
    return {
        name: entry.timeout
        for name, entry in servers.items()
        if not recipe.env.servers or name in recipe.env.servers
    }


def call_time_note(recipe: Recipe, limits: Mapping[str, float]) -> str | None:
    """A sentence about a tool_timeout that ends calls early, or that has no effect; None where there is none to say."""
    seconds = recipe.agent.tool_timeout
    if seconds is None or not limits:
        return None
    earlier = {name: limit for name, limit in limits.items() if limit > seconds}
    if earlier:
        return (
            f"agent.tool_timeout is {seconds:g}: calls end before the tool servers' own limits, which are "
            f"{_named(earlier)}. Leave it out to use those."
        )
    if seconds > max(limits.values()):
        return (
            f"agent.tool_timeout is {seconds:g} and gives no call more time: the tool servers' own limits are "
            f"{_named(limits)} (`timeout` in servers.yaml)."
        )
    return None


def _named(limits: Mapping[str, float]) -> str:
    longest = sorted(limits.items(), key=lambda one: -one[1])
    named = [f"{seconds:g} s ({name})" for name, seconds in longest[:_MAX_NAMED]]
    rest = len(longest) - _MAX_NAMED
    return ", ".join(named) + (f" and {rest} more" if rest > 0 else "")
