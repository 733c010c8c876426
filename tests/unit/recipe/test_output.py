"""What a recipe becomes outside: YAML, digests, differences, masked values, a JSON Schema."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from aworld_train import recipe
from aworld_train.recipe import Recipe
from aworld_train.recipe.output import to_dict


def test_plain_data_holds_no_enum_and_no_extends() -> None:
    data = to_dict(Recipe())
    assert data["rollout"]["engine"] == "transformers"
    assert "extends" not in data


def test_text_that_yaml_would_misread_survives_a_file(tmp_path: Path) -> None:
    awkward = [
        "1e-6",
        "yes",
        "null",
        "010",
        "1:30",
        "2026-11-20",
        "${not.a.key}",
        r"\${x}",
        "",
        "a: b",
        "- a",
        "\x85",
        "\u2028",
        "\ufeff",
        " x ",
        "a\r\nb",
        "a\n b\n\n",
    ]
    for text in awkward:
        stored = tmp_path / "recipe.yaml"
        original = Recipe(raw={"a": "1e-6"})
        original.agent.system_prompt = text
        stored.write_text(recipe.dump(recipe.to_source(original)), encoding="utf-8")
        assert recipe.load(stored) == original


def test_long_text_is_stored_as_a_readable_block() -> None:
    original = Recipe()
    original.agent.system_prompt = "You are helpful.\nAnswer briefly.\n"
    assert "system_prompt: |\n    You are helpful.\n    Answer briefly.\n" in recipe.dump(
        recipe.to_source(original)
    )


def test_the_digest_sees_values_and_not_the_order_of_keys() -> None:
    one = recipe.load({"trainer": {"steps": 3, "seed": 1}})
    same = recipe.load({"trainer": {"seed": 1, "steps": 3}})
    other = recipe.load({"trainer": {"seed": 1, "steps": 4}})
    assert recipe.digest(one) == recipe.digest(same) == recipe.digest(to_dict(one))
    assert recipe.digest(one) != recipe.digest(other)


def test_differences_are_dotted_keys() -> None:
    old = {"name": "a", "trainer": {"steps": 1, "lr": 1}, "env": {"servers": ["a"]}, "verl": {}}
    new = {
        "name": "a",
        "trainer": {"steps": 2, "lr": 1.0},
        "env": {"servers": ["b"]},
        "verl": {"x": {"y": 1}},
    }
    assert sorted(recipe.changes(old, new)) == ["env.servers", "trainer.steps", "verl", "verl.x.y"]
    assert recipe.changes(old, old) == {}
    assert list(recipe.changes({"a": True}, {"a": 1})) == ["a"]


def test_only_secrets_are_masked() -> None:
    tree = {
        "a": {"HF_TOKEN": "x", "pad_token": "<pad>", "n": 1},
        "list": [{"password": "x"}],
        "api_key": None,
    }
    assert recipe.masked(tree) == {
        "a": {"HF_TOKEN": "***", "pad_token": "<pad>", "n": 1},
        "list": [{"password": "***"}],
        "api_key": None,
    }
    assert recipe.masked({"token": "${oc.env:T}"}) == {"token": "${oc.env:T}"}


def test_the_json_schema_has_every_key_with_its_help() -> None:
    def compare(section: Any, schema: dict[str, Any]) -> None:
        hints = get_type_hints(section)
        assert schema["additionalProperties"] is False
        # The framework's own keys have its name in a file, and `async` is a word of Python's.
        names = {field.name: field.name for field in fields(section)} | {"raw": "verl", "async_": "async"}
        assert list(schema["properties"]) == [names[field.name] for field in fields(section)]
        for field in fields(section):
            entry = schema["properties"][names[field.name]]
            if is_dataclass(hints[field.name]):
                compare(hints[field.name], entry)
            else:
                assert entry["description"] == field.metadata["help"]

    compare(Recipe, recipe.json_schema())


def test_the_json_schema_takes_values_and_interpolations() -> None:
    trainer = recipe.json_schema()["properties"]["trainer"]["properties"]
    assert trainer["steps"]["anyOf"] == [{"type": "integer"}, {"type": "string", "pattern": r"\$\{.+\}"}]
    assert trainer["minibatch_size"]["anyOf"][0] == {"type": ["integer", "null"]}
    engine = recipe.json_schema()["properties"]["rollout"]["properties"]["engine"]
    assert engine["anyOf"][0] == {"enum": ["transformers", "vllm", "sglang"]}
    assert engine["default"] == "transformers"
