"""The form of an answer is a wish of a known kind, or refused by its name."""

import json
from typing import Any

import pytest

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway.output_format import wanted
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules

SCHEMA = {"type": "string", "const": "é"}
STRICT, RELAXED = RequestRules(strict=True), RequestRules()


@pytest.mark.parametrize(
    ("form", "output"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat()),
        ({"type": "json_schema", "schema": SCHEMA}, OutputFormat(json.dumps(SCHEMA, ensure_ascii=False))),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            OutputFormat('{"type": "string", "const": "é"}'),
        ),
    ],
)
def test_a_form_is_a_wish_unless_requests_are_strict(form: Any, output: OutputFormat | None) -> None:
    assert wanted(form, "f", RELAXED) == output
    if output is None:
        assert wanted(form, "f", STRICT) is None
    else:
        with pytest.raises(RequestRefused, match=r"^f: a grammar would change") as caught:
            wanted(form, "f", STRICT)
        assert caught.value.parameter == "f"


@pytest.mark.parametrize(
    ("form", "message", "parameter"),
    [
        ("text", "must be an object", "f"),
        ({}, "must be a string", "f.type"),
        ({"type": "grammar"}, "only text, json_object and json_schema are possible", "f.type"),
        ({"type": "json_schema"}, "must be an object", "f.schema"),
        ({"type": "json_schema", "json_schema": 1}, "must be an object", "f.json_schema"),
        ({"type": "json_schema", "json_schema": {}}, "must be an object", "f.json_schema.schema"),
        (
            {"type": "json_schema", "schema": {"type": 1}},
            "is not a JSON schema: $.type: 1 is not",
            "f.schema",
        ),
    ],
)
def test_another_form_is_refused_by_its_name(form: Any, message: str, parameter: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        wanted(form, "f", RELAXED)
    assert message in str(caught.value)
    assert caught.value.parameter == parameter
