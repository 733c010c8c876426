"""What a recipe takes from the environment works as a value, and is written and shown as a reference."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aworld_train import recipe
from aworld_train.errors import RecipeError
from aworld_train.recipe.env_text import EnvText, shown
from aworld_train.recipe.interpolation import resolved
from aworld_train.recipe.output import to_source, written
from aworld_train.recipe.paths import whole_path

SECRET = "s3cret-value"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", SECRET)
    monkeypatch.setenv("STEPS", "12")
    monkeypatch.delenv("ABSENT", raising=False)


def prompt(text: str, **more: Any) -> Any:
    """The system prompt that a recipe with ``text`` for it has."""
    return recipe.load({"agent": {"system_prompt": text}, **more}).agent.system_prompt


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${oc.env:KEY}", SECRET),
        ("${ oc.env : KEY }/x", f"{SECRET}/x"),
        ("a ${oc.env:KEY} b ${oc.env:KEY}", f"a {SECRET} b {SECRET}"),
        ("${oc.env:ABSENT,${oc.env:KEY}}", SECRET),
        ("${oc.env:'KEY'}", SECRET),
        ("${oc.decode:${oc.env:KEY}}", SECRET),
        (r"\${x} ${oc.env:KEY} \\\${y}", rf"${{x}} {SECRET} \${{y}}"),
        (r"C:\\${oc.env:KEY}", rf"C:\{SECRET}"),
        ("{\"a\": '${oc.env:KEY}'}", f"{{\"a\": '{SECRET}'}}"),
        ("${oc.env:ABSENT,'}'}${oc.env:KEY}", "}" + SECRET),
    ],
)
def test_the_value_is_the_value_and_what_is_written_reads_as_it(text: str, value: str) -> None:
    loaded = prompt(text)
    assert loaded == value
    assert isinstance(loaded, EnvText)
    assert SECRET not in repr(loaded)
    assert SECRET not in json.dumps(written({"a": [loaded]}))
    assert resolved(yaml.safe_load(yaml.safe_dump(written({"a": [loaded]})))) == {"a": [value]}
    assert prompt(loaded.reference) == value


def test_other_keys_that_name_the_key_keep_the_reference() -> None:
    loaded = prompt(
        "Ask ${env.url} at ${name}.", env={"url": "http://${oc.env:KEY}/mcp"}, name="run-${trainer.steps}"
    )
    assert loaded == f"Ask http://{SECRET}/mcp at run-10."
    assert shown(loaded) == "Ask http://${oc.env:KEY}/mcp at run-10."


def test_numbers_and_choices_are_values() -> None:
    loaded = recipe.load(
        {"trainer": {"steps": "${oc.env:STEPS}", "seed": "${oc.env:ABSENT,7}"}, "name": "r${trainer.steps}"}
    )
    assert (loaded.trainer.steps, loaded.trainer.seed, loaded.name) == (12, 7, "r12")
    assert recipe.to_source(loaded)["trainer"]["steps"] == 12


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_being_written(text: str) -> None:
    assert resolved(written(text)) == text
    mixed = EnvText(text + SECRET, written(text) + "${oc.env:KEY}")
    if not text.endswith("\\"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KEY", SECRET)
            assert resolved(written(mixed)) == mixed


def test_a_recipe_in_memory_keeps_its_references() -> None:
    loaded = recipe.load({"agent": {"system_prompt": "${oc.env:KEY}"}, "env": {"token": "${oc.env:KEY}"}})
    again = recipe.read(loaded)
    assert again.recipe == loaded
    assert SECRET not in json.dumps(again.unresolved)
    assert SECRET not in recipe.dump(recipe.to_source(loaded))
    for copied in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert copied == loaded
        assert to_source(copied)["agent"]["system_prompt"] == "${oc.env:KEY}"


def test_a_value_that_is_about_to_be_written_by_mistake_is_an_error() -> None:
    with pytest.raises(yaml.representer.RepresenterError):
        yaml.safe_dump({"a": prompt("${oc.env:KEY}")})


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["env.url=${oc.env:KEY}"], "`env.url` must begin with http:// or https://, it is '${oc.env:KEY}'"),
        (
            ["trainer.steps=${oc.env:KEY}"],
            "`trainer.steps` expects a whole number, got text from ${oc.env:KEY}",
        ),
        (
            ["rollout.engine=${oc.env:KEY}"],
            "expects one of transformers, vllm, sglang, got text from ${oc.env:KEY}",
        ),
        (["env.servers=${oc.env:KEY}"], "`env.servers` expects a list of text, got text from ${oc.env:KEY}"),
        (
            ["agent.environment=${oc.env:KEY}"],
            "`agent.environment` expects a map, got text from ${oc.env:KEY}",
        ),
        (["reward.scorer=${oc.env:KEY}"], "`reward.scorer` is '${oc.env:KEY}', which is none of"),
        (["reward.answer_schema=${oc.env:KEY}"], "`reward.answer_schema`: "),
        (["endpoints.a={url: '${oc.env:KEY}', model: m}"], "it is '${oc.env:KEY}'"),
        (["agent.context.summarizer=${oc.env:KEY}"], "names the endpoint '${oc.env:KEY}'"),
        (["name=x-${oc.env:KEY}"], "`name` names the run's folder"),
        (["model.path=${oc.env:ABSENT,${name}}"], "cannot be part of another interpolation"),
        (["model.path=${${oc.env:KEY}}"], "cannot be part of another interpolation"),
        (["env.servers=${oc.decode:'[${oc.env:KEY}]'}"], "an environment variable gives one value"),
        (["model.path=${verl.x}", "verl.x=${oc.env:ABSENT}"], "needs the environment variable ABSENT"),
        (["verl.data.x=${data.y}/${oc.env:ABSENT}"], "needs the environment variable ABSENT"),
    ],
)
def test_what_cannot_be_is_refused_by_its_reference(overrides: list[str], sentence: str) -> None:
    with pytest.raises(RecipeError) as refused:
        recipe.load({}, overrides)
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_variable_that_a_reading_process_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = written(prompt("${oc.env:KEY}"))
    monkeypatch.delenv("KEY")
    with pytest.raises(RecipeError, match="'KEY' not found"):
        resolved(stored)


def test_the_digest_is_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe.digest(recipe.load({"model": {"path": "${oc.env:KEY}"}}))
    monkeypatch.setenv("KEY", "another-value")
    assert recipe.digest(recipe.load({"model": {"path": "${oc.env:KEY}"}})) == before
    assert recipe.digest(recipe.load({"model": {"path": "x"}})) != before


@pytest.mark.parametrize(
    ("value", "text", "reference"),
    [
        ("/data", "${oc.env:KEY}/x", "${oc.env:KEY}/x"),
        ("data", "${oc.env:KEY}/x", "{here}/${oc.env:KEY}/x"),
        ("data", "/a/${oc.env:KEY}", "/a/${oc.env:KEY}"),
        ("data", "~/${oc.env:KEY}", "{home}/${oc.env:KEY}"),
    ],
)
def test_a_path_is_made_whole_around_its_reference(
    monkeypatch: pytest.MonkeyPatch, value: str, text: str, reference: str
) -> None:
    monkeypatch.setenv("KEY", value)
    path = whole_path(prompt(text))
    assert shown(path) == reference.replace("{here}", str(Path.cwd())).replace("{home}", str(Path.home()))
    assert (
        resolved(written(path))
        == path
        == str(Path(text.replace("${oc.env:KEY}", value)).expanduser().absolute())
    )


def test_a_variable_that_holds_a_path_with_a_tilde_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "~/secret-place")
    with pytest.raises(RecipeError, match="which only a shell expands") as refused:
        whole_path(prompt("${oc.env:KEY}/x"))
    assert "secret-place" not in str(refused.value)
