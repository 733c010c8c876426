"""Which environment a run uses, and with which token."""

from pathlib import Path

import pytest

from aworld_train import env
from aworld_train import recipe as recipes
from aworld_train.errors import CassetteError, EnvironmentFailure, RecipeError, UsageError
from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.training.environment import HealthWatch, RunEnvironment, find_environment, run_environment

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


def test_an_environment_has_the_time_that_the_recipe_gives_it_to_be_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def up(_: object, settings: env.EnvSettings, **options: object) -> env.EnvConnection:
        waits.append(settings.wait)
        raise EnvironmentFailure("not today")

    def examine(url: str, token: str, calls: object, seconds: float, _: object) -> env.EnvironmentCheck:
        waits.append(seconds)
        return env.EnvironmentCheck(0, 0, [], [], {})

    monkeypatch.setattr(env, "up", up)
    monkeypatch.setattr(env, "examine", examine)
    started = recipes.load({"env": {"docker_dir": "calculator-mcp-server", "ready_timeout": 7}})
    with pytest.raises(EnvironmentFailure), run_environment(started):
        pass
    with run_environment(recipes.load({"env": {"url": URL, "ready_timeout": 8}})):
        pass
    with pytest.raises(EnvironmentFailure), run_environment(recipes.load({"env": {"docker_dir": "x"}})):
        pass
    assert waits == [7, 8, 300]


def test_without_any_environment_it_says_how_to_name_one() -> None:
    with pytest.raises(EnvironmentFailure, match=r"env\.docker_dir"):
        find_environment(recipes.load({}))


TOOLS = [{"name": "calculator", "inputSchema": {"type": "object"}}]


def replaying(path: Path, **env: object) -> recipes.Recipe:
    return recipes.load({"env": {"cassette": {"mode": "replay", "path": str(path)}, **env}})


def recorded(path: Path, server: str = "local") -> Path:
    Cassette(path, Mode.record).keep_tools(server, TOOLS)
    return path


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would start, or look at, an environment fails the test."""

    def refused(*args: object, **kwargs: object) -> None:
        raise AssertionError("an environment is wanted where its calls are replayed")

    for name in ("up", "down", "probe", "examine"):
        monkeypatch.setattr(env, name, refused)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("wanted", [{"docker_dir": "calculator-mcp-server"}, {"url": URL}, {}])
def test_with_a_cassette_to_replay_no_environment_is_started_or_looked_for(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    with run_environment(replaying(recorded(tmp_path / "calls.jsonl"), **wanted)) as found:
        assert found.replayed
        assert found.token == ""
        assert found.variables()["MCP_SERVER_URL"].startswith("http://127.0.0.1:")
        watch = HealthWatch(found, 0.0)
        assert watch.failure_reason() is None
        assert found.answers()
        assert not watch.silent
        assert not watch.silent


@pytest.mark.usefixtures("nothing_starts")
def test_names_of_tools_are_compared_with_those_that_there_are(tmp_path: Path) -> None:
    path = recorded(tmp_path / "calls.jsonl")
    for selection in ({"include": ["calc*"]}, {"short_descriptions": True}):
        recipe = recipes.load(
            {"env": {"cassette": {"mode": "replay", "path": str(path)}}, "agent": {"tools": selection}}
        )
        with run_environment(recipe):
            pass
    wrong = {
        "env": {"cassette": {"mode": "replay", "path": str(path)}},
        "agent": {"tools": {"exclude": ["calculater"]}},
    }
    with pytest.raises(UsageError, match="Did you mean 'calculator'"), run_environment(recipes.load(wrong)):
        pass


@pytest.mark.usefixtures("nothing_starts")
def test_a_cassette_that_is_missing_or_none_is_said_before_anything_starts(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    for path, sentence in ((tmp_path / "none.jsonl", "No cassette at"), (other, "other.jsonl")):
        with (
            pytest.raises(CassetteError, match=sentence),
            run_environment(replaying(path, docker_dir="calculator-mcp-server")),
        ):
            raise AssertionError("it started")


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("server", "wanted"),
    [
        ("tools.example.com", {"docker_dir": "calculator-mcp-server"}),
        ("local", {"url": "https://tools.example.com/mcp"}),
        ("local", {"docker_dir": "calculator-mcp-server", "servers": ["calculator"]}),
    ],
)
def test_a_cassette_of_another_environment_is_said_before_anything_starts(
    tmp_path: Path, server: str, wanted: dict[str, object]
) -> None:
    path = recorded(tmp_path / "calls.jsonl", server)
    with (
        pytest.raises(CassetteError, match=f"has no tool list of the server .*only those of {server}"),
        run_environment(replaying(path, **wanted)),
    ):
        raise AssertionError("it started")


def test_an_environment_that_answers_no_more_is_lost_once_its_time_is_up() -> None:
    gone = RunEnvironment(URL, "")
    assert HealthWatch(gone, 60.0).failure_reason() is None
    watch = HealthWatch(gone, 0.0)
    assert "env.recovery_timeout is 0" in (watch.failure_reason() or "")
    assert (watch.silent, gone.answers()) == (True, False)
