"""Which environment a run uses, and with which token."""

from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.errors import EnvironmentFailure, RecipeError
from aworld_train.launch.environment import find_environment

URL = "http://127.0.0.1:1/mcp"


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MCP_SERVER_URL", "MCP_SERVER_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_a_recipe_names_an_environment_and_where_its_token_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "my-token")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "another")
    found = find_environment(recipes.load({"env": {"url": URL, "token": "${oc.env:MINE}"}}))
    assert found.variables() == {"MCP_SERVER_URL": URL, "MCP_SERVER_TOKEN": "my-token"}
    assert find_environment(recipes.load({"env": {"url": URL}})).token == "another"


def test_a_token_is_not_written_into_a_recipe() -> None:
    with pytest.raises(RecipeError, match=r"env\.token.*looks like a secret") as refused:
        recipes.load({"env": {"url": URL, "token": "my-token"}})
    assert "my-token" not in refused.value.message


def test_without_any_environment_it_says_how_to_name_one() -> None:
    with pytest.raises(EnvironmentFailure, match=r"env\.docker_dir"):
        find_environment(recipes.load({}))
