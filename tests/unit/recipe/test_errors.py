"""Every mistake in a recipe is refused with its place, its key and a way out."""

from pathlib import Path

import pytest

from aworld_train import recipe
from aworld_train.errors import RecipeError


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(text: str, *overrides: str) -> str:
    Path("a.yaml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        recipe.load("a.yaml", overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nsteps: 3\n", "a.yaml:2: unknown key `steps`; did you mean `trainer.steps`?"),
        ("trainer:\n  stepz: 3\n", "a.yaml:2: unknown key `trainer.stepz`; did you mean `trainer.steps`?"),
        (
            "trainer:\n  temperature: 1\n",
            "a.yaml:2: unknown key `trainer.temperature`; did you mean `rollout.temperature`?",
        ),
        ("zzzz: 1\n", "a.yaml:1: unknown key `zzzz`"),
        ("trainer:\n\n  steps: many\n", "a.yaml:3: `trainer.steps` expects a whole number, got text 'many'"),
        ("trainer: {steps: 3.7}\n", "a.yaml:1: `trainer.steps` expects a whole number, got 3.7"),
        ("trainer: {steps: true}\n", "a.yaml:1: `trainer.steps` expects a whole number, got true"),
        ("trainer: {steps: null}\n", "a.yaml:1: `trainer.steps` expects a whole number, got null"),
        ("trainer: {steps: '8'}\n", "a.yaml:1: `trainer.steps` expects a whole number, got text '8'"),
        ("trainer: {lr: [1]}\n", "a.yaml:1: `trainer.lr` expects a number, got a list"),
        ("dataset: {shuffle: 1}\n", "a.yaml:1: `dataset.shuffle` expects true or false, got 1"),
        ("name: 12\n", "a.yaml:1: `name` expects text, got 12; put it in quotes to make it text"),
        ("env: {servers: [a, 1]}\n", "a.yaml:1: `env.servers` expects a list of text, item 2 is 1"),
        (
            "rollout: {engine: vlm}\n",
            "a.yaml:1: `rollout.engine` expects one of transformers, vllm, sglang, got text 'vlm'"
            "; did you mean `vllm`?",
        ),
        ("trainer: 3\n", "a.yaml:1: `trainer` is a section: expected keys below it, got 3"),
        ("trainer:\n", "a.yaml:1: `trainer` is a section: expected keys below it, got null"),
        ("verl: 3\n", "a.yaml:1: `verl` expects a map, got 3"),
        ("name: a\nname: b\n", "a.yaml:2: `name` is written twice, first on line 1"),
        ("verl:\n  a:\n    b: 1\n    b: 2\n", "a.yaml:4: `verl.a.b` is written twice, first on line 3"),
        ("3: x\n", "a.yaml:1: the key `3` is not text; put it in quotes"),
        ("- a\n", "a.yaml:1: a recipe is a map of keys, this is a list; write `key: value` on each line"),
        ("# nothing\n", "a.yaml is empty: a recipe has at least one key, such as `name: my-run`"),
        ("name: &x [*x]\n", "a.yaml:1: an alias refers to itself"),
        ("extends: 3\n", "a.yaml:1: `extends` expects text, got 3"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\ntrainer: {steps: 3\n", "a.yaml:3: "),
        ("name: a\n\tb: 1\n", "a.yaml:2: "),
        ("name: a\n---\nname: b\n", "a.yaml:2: "),
        ("name: !!python/object:os.system x\n", "a.yaml:1: "),
        ("name: a\nagent:\n  system_prompt: \x00\n", "a.yaml:3: "),
    ],
)
def test_text_that_is_not_plain_yaml_is_refused_with_its_line(text: str, place: str) -> None:
    assert refusal(text).startswith(place)


def test_all_mistakes_of_all_files_and_overrides_are_said_at_once() -> None:
    Path("base.yaml").write_text("trainer:\n  lr: fast\n")
    message = refusal("extends: base.yaml\nstep: 1\n", "trainer.stepz=3")
    assert message.splitlines() == [
        "3 problems:",
        "  - base.yaml:2: `trainer.lr` expects a number, got text 'fast'",
        "  - a.yaml:2: unknown key `step`; did you mean `trainer.steps`?",
        "  - override trainer.stepz=3: unknown key `trainer.stepz`; did you mean `trainer.steps`?",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps=3", "override steps=3: unknown key `steps`; did you mean `trainer.steps`?"),
        ("+trainer.steps=3", "override +trainer.steps=3: unknown key `+trainer`; did you mean `trainer`?"),
        ("trainer.steps=x", "override trainer.steps=x: `trainer.steps` expects a whole number, got text 'x'"),
        ("trainer=null", "override trainer=null: `trainer` is a section: expected keys below it, got null"),
        ("trainer.steps", "`trainer.steps` is not an override: write key=value, such as trainer.steps=20"),
        ("trainer..steps=1", "override trainer..steps=1: the key has an empty part"),
        ("model.path=", "override model.path=: the value is missing; write model.path=null for none or"),
        ("trainer.steps=[1", "override trainer.steps=[1: the value is not YAML: "),
        ("extends=b.yaml", "override extends=b.yaml: `extends` is a key of recipe files"),
    ],
)
def test_a_mistaken_override_is_quoted(override: str, message: str) -> None:
    assert refusal("name: a\n", override).startswith(message)


def test_a_missing_environment_variable_is_named_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    assert (
        refusal("name: a\nmodel:\n  path: ${oc.env:NOT_SET}/x\n")
        == "a.yaml:3: `model.path` needs the environment variable NOT_SET, which is not set"
    )
    assert (
        refusal("verl:\n  a: {b: ['${oc.env:NOT_SET}']}\n")
        == "a.yaml:2: `verl.a.b.0` needs the environment variable NOT_SET, which is not set"
    )


def test_an_interpolation_that_gives_the_wrong_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "many")
    message = refusal("trainer:\n  steps: ${oc.env:STEPS}\n")
    assert message == "a.yaml:2: `trainer.steps` expects a whole number, got text from ${oc.env:STEPS}"


@pytest.mark.parametrize("text", ["${nothing.here}", "${trainer.steps", "${unknown:1}", "${name}"])
def test_an_interpolation_that_cannot_be_resolved_is_refused(text: str) -> None:
    assert refusal(f"name: '{text}'\n").startswith(f"a.yaml:1: `name`: cannot resolve `{text}`: ")


def test_a_missing_recipe_lists_those_nearby() -> None:
    Path("gsm8k.yaml").write_text("name: a\n")
    with pytest.raises(RecipeError) as caught:
        recipe.load("gsm8x.yaml")
    assert str(caught.value).startswith("unknown recipe gsm8x.yaml. Did you mean 'gsm8k.yaml'? There are: ")


def test_a_missing_parent_is_named_with_the_line_that_asks_for_it() -> None:
    assert refusal("name: a\nextends: none.yaml\n").startswith("a.yaml:2: unknown recipe none.yaml")


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("b.yaml").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(RecipeError, match=r"cannot read the recipe b\.yaml: it is not UTF-8 text"):
        recipe.load("b.yaml")


def test_a_mapping_with_keys_that_are_not_text_is_refused() -> None:
    with pytest.raises(RecipeError, match="the key 3 of a recipe is not text"):
        recipe.load({"verl": {3: 1}})


def test_a_recipe_object_cannot_extend() -> None:
    with pytest.raises(RecipeError, match="has no effect in a Recipe object"):
        recipe.load(recipe.Recipe(extends="base.yaml"))


@pytest.mark.parametrize(
    "key", ["WANDB_API_KEY", "HF_TOKEN", "password", "client_secret", "AWS_SECRET_ACCESS_KEY", "apikey"]
)
def test_a_secret_written_out_is_refused_and_never_repeated(key: str) -> None:
    for message in (
        refusal(f"verl:\n  env_vars:\n    {key}: hunter2\n"),
        refusal("name: a\n", f"verl.env_vars.{key}=hunter2"),
        refusal("name: a\n", f"verl={{env_vars: {{{key}: hunter2}}}}"),
    ):
        assert "looks like a secret" in message and "export it as an environment variable" in message
        assert "hunter2" not in message


def test_counts_and_names_of_tokens_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    raw = {"pad_token": "<pad>", "max_tokens": 3, "tokenizer": "x", "HF_TOKEN": "${oc.env:HF_TOKEN}"}
    assert recipe.load({"verl": raw}).raw == raw
