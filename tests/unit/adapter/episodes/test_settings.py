"""What a recipe says about episodes arrives in the processes that play them, and no secret goes with it."""

from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.paths import absolute_argument, absolute_function, absolute_path
from aworld_train.adapter.episodes.settings import (
    EpisodeSettings,
    episode_settings,
    read_settings,
    settings_from,
)
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.recipe.schema import TreatmentSection
from aworld_train.rollout.cassette import NoTools
from aworld_train.rollout.endpoint import Endpoint, Failover
from aworld_train.rollout.model import SamplingParams

ENDPOINTS = {
    "small": {"url": "http://127.0.0.1:1/v1/", "model": "s", "key_variable": "SMALL_KEY", "timeout": 5},
    "big": {"url": "https://models.example/v1", "model": "b"},
}


def travelled(*overrides: str, data: dict[str, Any] | None = None) -> EpisodeSettings:
    """The settings of a recipe after their way through a file."""
    written = yaml.safe_dump(episode_settings(recipes.load(data or {}, overrides)))
    return settings_from(yaml.safe_load(written))


OTHER = {
    "agent": {
        "name": "mine",
        "trainable": ["worker"],
        "requests": "strict",
        "context": {
            "policy": "summarize",
            "budget": 700,
            "keep": 3,
            "summarizer": "big",
            "condense_over": 900,
            "condensers": ["small", "big"],
        },
        "repetition": {"turns": 4, "loops": 5},
        "tools": {"include": ["read_*"], "exclude": ["read_video"], "short_descriptions": True},
        "system_prompt": "Use the tool. é",
        "tool_parser": "qwen3_coder",
        "max_turns": 5,
        "max_tool_result_chars": 77,
        "tool_timeout": 1.5,
        "episode_timeout": 2.5,
    },
    "env": {"servers": ["b", "a"], "recovery_timeout": 3.5},
    "rollout": {
        "treatment": dict.fromkeys(Outcome, "masked"),
        "small_group": "resample",
        "n": 6,
        "min_group": 4,
    },
    "endpoints": ENDPOINTS,
}


def test_every_key_of_the_agent_s_section_arrives() -> None:
    # A kind of agent excludes the others, so each has a recipe of its own.
    kinds: list[dict[str, Any]] = [
        {"command": ["./agent"], "environment": {"MODE": "fast"}},
        {"builder": "agents:build"},
        {"aworld": "agent.yaml"},
        {"loop": "agents:Mine"},
    ]
    default = asdict(recipes.load({}).agent)
    seen = set()
    for kind in kinds:
        given = {**OTHER, "agent": {**OTHER["agent"], **kind}}
        agent = travelled(data=given).agent
        for name, wanted in given["agent"].items():
            assert agent[name] == wanted, name
            assert _plain(default[name]) != wanted, f"{name} has its default, and so proves nothing"
            seen.add(name)
    assert seen == set(default)


def test_everything_else_arrives() -> None:
    settings = travelled(data=OTHER)
    assert settings.env["servers"] == ["b", "a"]
    assert settings.env["recovery_timeout"] == 3.5
    assert (settings.repetition.turns, settings.repetition.loops) == (4, 5)
    assert {settings.treatment(outcome) for outcome in Outcome} == {Treatment.masked}
    assert settings.replay_below == 4
    context = settings.context
    assert (context.policy, context.budget, context.keep, context.condense_over) == ("summarize", 700, 3, 900)
    small = Endpoint("small", "http://127.0.0.1:1/v1", "s", "SMALL_KEY", 5.0)
    big = Endpoint("big", "https://models.example/v1", "b")
    assert _asked(context.summarizer) == big
    assert _asked(context.condenser) == Failover([small, big])


def test_the_defaults_are_the_recipe_s() -> None:
    settings = travelled()
    assert (settings.context.policy, settings.context.budget) == (None, 0)
    assert settings.context.summarizer is None
    assert settings.context.condenser is None
    assert settings.cassette is None
    assert isinstance(travelled("env.backend=none").cassette, NoTools)
    assert settings.replay_below == 0
    assert settings.agent == {
        **{name: _plain(value) for name, value in asdict(recipes.load({}).agent).items()},
        "context": {**asdict(recipes.load({}).agent.context), "policy": "off"},
    }


def test_outcomes_and_their_treatments_are_the_same_set() -> None:
    assert [field.name for field in fields(TreatmentSection)] == [outcome.value for outcome in Outcome]
    assert all(field.metadata["help"] for field in fields(TreatmentSection))


def test_what_the_model_did_is_trained_on_and_what_happened_to_it_is_not() -> None:
    settings = travelled()
    own = {outcome for outcome in Outcome if settings.treatment(outcome) is Treatment.trained}
    assert own == {
        Outcome.answered,
        Outcome.wrong_format,
        Outcome.max_turns,
        Outcome.overlong,
        Outcome.repetition,
        Outcome.refused,
        Outcome.filtered,
        Outcome.timeout,
        Outcome.broken_tools,
    }
    assert {settings.treatment(outcome) for outcome in set(Outcome) - own} == {Treatment.dropped}


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_s_treatment_is_changed_alone(outcome: Outcome) -> None:
    changed, default = travelled(f"rollout.treatment.{outcome.value}=masked"), travelled()
    different = {other for other in Outcome if changed.treatment(other) is not default.treatment(other)}
    assert different == {outcome}
    assert changed.treatment(outcome) is Treatment.masked


@pytest.mark.parametrize(
    ("overrides", "least"),
    [
        (["rollout.n=8"], 2),
        (["rollout.n=8", "rollout.min_group=5"], 5),
        (["rollout.n=1", "algorithm.name=reinforce_plus_plus"], 1),
    ],
)
def test_small_groups_are_played_again_below_their_least_size_if_asked_for(
    overrides: list[str], least: int
) -> None:
    assert travelled(*overrides, "rollout.small_group=resample").replay_below == least
    assert travelled(*overrides, "rollout.small_group=drop").replay_below == 0


def test_the_cassette_is_where_the_user_said_wherever_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = travelled("env.cassette={mode: record, path: calls.jsonl, rules: {search: {ignore: [now]}}}")
    monkeypatch.chdir("/")
    assert settings.cassette is not None
    assert settings.cassette.path == tmp_path / "calls.jsonl"
    assert settings.cassette is settings.cassette, "all episodes of a process share one"


def test_limits_are_the_recipe_s() -> None:
    limits = travelled(data=OTHER).limits({"temperature": 0.5, "top_k": 7}, prompt=11, response=13)
    assert (limits.max_turns, limits.max_prompt_tokens, limits.max_response_tokens) == (5, 11, 13)
    assert limits.sampling == SamplingParams(0.5, 1.0, 7)


def test_requests_are_strict_where_the_recipe_wants_them_to_be() -> None:
    for requests, strict in (("relaxed", False), ("strict", True)):
        settings = travelled(data={"agent": {"requests": requests}})
        limits = settings.limits({}, prompt=1, response=1)
        assert limits.strict_requests is strict
        assert (limits.repetition, limits.context) == (settings.repetition, settings.context)
        assert limits.sampling == SamplingParams(1.0, 1.0, -1)


def test_no_secret_is_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MINE", "SMALL_KEY", "MCP_SERVER_TOKEN"):
        monkeypatch.setenv(name, f"the-secret-of-{name}")
    data = {**OTHER, "env": {"url": "http://127.0.0.1:1/mcp", "token": "${oc.env:MINE}"}}
    loaded = recipes.load(data)
    assert loaded.env.token == "the-secret-of-MINE"
    file = tmp_path / "episodes.yaml"
    file.write_text(yaml.safe_dump(episode_settings(loaded)))
    assert "the-secret" not in file.read_text()
    assert "the-secret" not in repr(read_settings(str(file)))


def test_a_path_is_whole_if_it_is_one_and_a_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert absolute_path("model") == str(tmp_path / "model")
    assert absolute_path("org/model") == "org/model"
    assert absolute_path("") == ""
    assert absolute_path(None) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_path("~/model") == str(tmp_path / "model")


def test_a_function_s_file_is_whole_and_a_module_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_function("agent.py:build") == f"{tmp_path}/agent.py:build"
    assert absolute_function("/there/agent.py:build") == "/there/agent.py:build"
    assert absolute_function("package.agent:build") == "package.agent:build"


def test_a_command_finds_its_files_from_anywhere_and_its_words_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("agent.py", "agent.js", "run", "fast"):
        (tmp_path / name).touch()
    (tmp_path / "python").symlink_to("/usr/bin/env")
    parts = ["python", "agent.py", "agent.js", "./run", "fast", "missing.py", "--mode=x.y", "./python"]
    assert [absolute_argument(part) for part in parts] == [
        "python",
        f"{tmp_path}/agent.py",
        f"{tmp_path}/agent.js",
        f"{tmp_path}/run",
        "fast",
        "missing.py",
        "--mode=x.y",
        f"{tmp_path}/python",
    ]
    assert Path(absolute_argument("./python")).is_symlink()


def test_a_recipe_without_data_for_validation_names_none() -> None:
    from aworld_train.adapter.verl.compose import compose

    composed = compose(recipes.load({"model": {"path": "m"}, "dataset": {"train": "t.parquet"}}), Path("run"))
    assert composed["data"]["val_files"] is None


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _asked(ask: Any) -> Any:
    """Whose method it is."""
    return ask.__self__
