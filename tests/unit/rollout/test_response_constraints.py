"""What a client wants of an answer is told to the model, and what the answer misses of it is named."""

import json
from typing import Any

import pytest

from aworld_train.rollout.images import TEXT_ONLY
from aworld_train.rollout.response_constraints import (
    NO_CONSTRAINTS,
    Miss,
    OutputFormat,
    RequestRules,
    ResponseConstraints,
    schema_fault,
)

OBJECT = OutputFormat()
NUMBER = OutputFormat(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))


@pytest.mark.parametrize(
    ("constraints", "content", "called", "misses"),
    [
        (NO_CONSTRAINTS, "no JSON", ["a", "b"], []),
        (ResponseConstraints(must_call=True), "", [], ["no_call"]),
        (ResponseConstraints(must_call=True), "", ["a"], []),
        (ResponseConstraints(tools=("a", "b")), "", ["b", "a", "b"], []),
        (ResponseConstraints(tools=("a",)), "", ["a", "b"], ["other_tool"]),
        (ResponseConstraints(tools=("a",)), "", [], []),
        (ResponseConstraints(one_call=True), "", ["a"], []),
        (ResponseConstraints(one_call=True), "", ["a", "a"], ["several_calls"]),
        (ResponseConstraints(output=NUMBER), '{"n": 1}', [], []),
        (ResponseConstraints(output=NUMBER), '{"n": "1"}', [], ["schema"]),
        (ResponseConstraints(output=NUMBER), "I call.", ["a"], []),
        (ResponseConstraints(True, ("a",), True, OBJECT), "no JSON", [], ["no_call", "schema"]),
        (ResponseConstraints(True, ("a",), True, OBJECT), "", ["a", "b"], ["other_tool", "several_calls"]),
    ],
)
def test_every_wish_that_an_answer_misses_is_named(
    constraints: ResponseConstraints, content: str, called: list[str], misses: list[Miss]
) -> None:
    assert list(constraints.misses(content, called)) == misses


def test_only_a_form_is_written_into_the_prompt() -> None:
    assert ResponseConstraints(True, ("a",), True).prompt == ""
    assert ResponseConstraints(output=NUMBER).prompt == NUMBER.prompt and NUMBER.prompt.endswith(
        f":\n{NUMBER.schema}"
    )
    assert ResponseConstraints(output=OBJECT).prompt == OBJECT.prompt and "one JSON object" in OBJECT.prompt


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({}, "{}", True),
        ({}, "[]", False),
        ({}, "{", False),
        ({}, "[" * 100_000, False),
        ({}, json.dumps({"n": "x" * (200_000 - 9)}), True),
        ({}, json.dumps({"n": "x" * (200_001 - 9)}), False),
        ({"type": "array"}, "[]", True),
        ({"type": "array"}, "{}", False),
        ({"$ref": "https://schemas.invalid/number"}, "1", False),
        # Patterns are not run, and what depends on them is not checked.
        ({"type": "string", "pattern": "^b"}, '"a"', True),
        ({"patternProperties": {"^n": {"type": "integer"}}}, '{"n": "1"}', True),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, '{"x": 1}', True),
        ({"patternProperties": {"^n": {}}, "unevaluatedProperties": False}, '{"x": 1}', True),
        ({"additionalProperties": False}, '{"x": 1}', False),
        ({"additionalProperties": False}, "{}", True),
        ({"unevaluatedProperties": False}, '{"x": 1}', False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_answer_has_a_form_by_all_of_its_schema_but_patterns(schema: Any, text: str, fits: bool) -> None:
    assert OutputFormat(json.dumps(schema) if schema else "").fits(text) is fits


def test_a_text_that_is_no_schema_has_a_fault_with_its_place() -> None:
    assert schema_fault(NUMBER.schema) == ""
    assert schema_fault('{"properties": {"n": {"type": "nothing"}}}').startswith(
        "$.properties.n.type: 'nothing'"
    )
    assert len(schema_fault(json.dumps({"type": "x" * 1000}))) == 300
    assert schema_fault('{"not": ' * 800 + "{}" + "}" * 800) == "it is nested too deeply"


def test_requests_want_nothing_that_is_enforced_by_default() -> None:
    assert RequestRules() == RequestRules(
        strict=False, template_options={}, max_top_logprobs=0, no_images=TEXT_ONLY
    )
    assert ResponseConstraints(must_call=False, tools=(), one_call=False, output=None) == NO_CONSTRAINTS
