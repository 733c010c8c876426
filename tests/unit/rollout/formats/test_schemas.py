"""What a text stands for by an argument's schema; what does not fit stays text."""

from typing import Any

import pytest

from aworld_train.rollout.formats.schemas import converted, parameter_schemas, tool_names


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        ("array", '["a", 1]', ["a", 1]),
        ("array", "['a', True]", ["a", True]),
        ("object", "{'a': None}", {"a": None}),
        ("object", '{"a": null}', {"a": None}),
        ("array", "('a', 1)", "('a', 1)"),
        ("array", "[a, b]", "[a, b]"),
        ("object", "{1, 2}", "{1, 2}"),
        ("array", f"['{'a' * 9_996}']", ["a" * 9_996]),
        ("array", f"['{'a' * 9_997}']", f"['{'a' * 9_997}']"),
        ("object", "{'a': 1j}", "{'a': 1j}"),
        ("array", "7", 7),
        ("integer", " 7 ", 7),
        ("number", "7.5", 7.5),
        ("integer", "seven", "seven"),
        ("integer", "true", "true"),
        ("boolean", "True", True),
        ("boolean", "false", False),
        ("boolean", "1", "1"),
        ("boolean", "null", None),
        ("string", "7", "7"),
        ("string", "null", "null"),
        ("string", " kept ", " kept "),
        (["string", "null"], "None", None),
        (["string", "null"], "null", None),
        (["string", "integer"], "7", 7),
        (["string", "null"], " 7 ", " 7 "),
        (["string", "boolean"], "true", "true"),
        (["string", "number"], "x ", "x "),
        (["integer", "array"], "[7]", [7]),
        (["integer", "array"], " [7 ", " [7 "),
        (["integer", 5], "7", 7),
        ("number", "None", None),
        ("number", "[7]", "[7]"),
        ("number", "false", "false"),
        ("number", " x ", " x "),
        ([], '{"a": 1}', {"a": 1}),
        ([], "{'a': 1}", "{'a': 1}"),
    ],
)
def test_a_text_is_read_by_its_type(types: Any, text: str, value: Any) -> None:
    read = converted(text, {"type": types})
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "7", 7),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {}]}, "7", 7),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": []}, "1", 1),
        ({"enum": ["1", 2]}, "1", 1),
        ({"anyOf": 5}, "1", 1),
        ({"anyOf": [{"type": "integer"}, {"enum": ["x"]}]}, "x", "x"),
        (None, "1", 1),
        (None, " x ", " x "),
        (None, "[" * 100_000, "[" * 100_000),
    ],
)
def test_a_schema_may_say_its_types_in_other_ways(schema: Any, text: str, value: Any) -> None:
    read = converted(text, schema)
    assert (read, type(read)) == (value, type(value))


def test_tools_have_their_names_and_arguments_in_either_form_and_others_none() -> None:
    properties = {"x": {"type": "string"}}
    tools: Any = [
        {"type": "function", "function": {"name": "a", "parameters": {"properties": properties}}},
        {"name": "b", "parameters": {"properties": [1]}},
        {"function": 5},
        {"name": "c", "parameters": 5},
    ]
    assert tool_names(tools) == {"a", "b", "c"}
    assert [parameter_schemas(tools, name) for name in "abcd"] == [properties, {}, {}, {}]
