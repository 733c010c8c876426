"""What a recipe's tool_timeout means beside the limits of the tool servers is said."""

from collections.abc import Mapping

import pytest

from aworld_train import recipe as recipes
from aworld_train.recipe.env_notes import call_time_note, server_limits


@pytest.mark.parametrize(
    ("seconds", "limits", "note"),
    [
        (None, {"a": 10.0}, None),
        (60, {}, None),
        (10, {"a": 10.0, "b": 5.0}, None),
        (7, {"a": 10.0, "b": 5.0}, "calls end before the tool servers' own limits, which are 10 s (a)."),
        (1, {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6}, "are 6 s (e), 5 s (d), 4 s (c) and 2 more."),
        (
            11,
            {"a": 10.0, "b": 5.0},
            "gives no call more time: the tool servers' own limits are 10 s (a), 5 s (b)",
        ),
    ],
)
def test_a_value_that_ends_calls_early_or_does_nothing_is_remarked(
    seconds: float | None, limits: Mapping[str, float], note: str | None
) -> None:
    recipe = recipes.load({"agent": {"tool_timeout": seconds}})
    if note is None:
        assert call_time_note(recipe, limits) is None
    else:
        remark = call_time_note(recipe, limits)
        assert remark is not None and remark.startswith(f"agent.tool_timeout is {seconds}") and note in remark


def test_the_limits_are_those_of_the_servers_that_the_recipe_uses() -> None:
    env = {"docker_dir": "gaia-mcp-server", "servers": ["terminal-server", "documents-csv-server"]}
    assert server_limits(recipes.load({"env": env})) == {"terminal-server": 660, "documents-csv-server": 120}
    assert len(server_limits(recipes.load({"env": {"docker_dir": "gaia-mcp-server"}}))) > 10
    assert server_limits(recipes.load({"env": {"docker_dir": "no-such-directory"}})) == {}
    assert server_limits(recipes.load({})) == {}
