"""What ``agent.tool_timeout`` means beside the limits that the tool servers of an environment have themselves."""

from collections.abc import Mapping

from aworld_train.errors import AworldTrainError
from aworld_train.recipe.schema import Recipe

_MAX_NAMED = 3


def server_limits(recipe: Recipe) -> dict[str, float]:
    """Seconds that a call may take, by tool server of the directory that the recipe starts; empty without one."""
    if recipe.env.started_from is None:
        return {}
    from aworld_train.env.directory import (
        find_directory,  # imports all of env, which most recipes' checks do not need
    )

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
