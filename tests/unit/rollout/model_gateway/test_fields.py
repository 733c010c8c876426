"""A value of the wrong type or range is refused with its parameter's name, and described."""

from collections.abc import Callable
from typing import Any

import pytest

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import fields


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[str, str, str]:
    with pytest.raises(RequestRefused) as caught:
        call(*arguments, **options)
    return str(caught.value), caught.value.code, caught.value.parameter


@pytest.mark.parametrize(
    ("value", "described"),
    [
        ((1 << 64) - 1, "18446744073709551615"),
        (1 << 64, "a number"),
        (-(1 << 64), "a number"),
        (0.5, "0.5"),
        (True, "a boolean"),
        (None, "null"),
        ("1", "a string"),
        ([], "an array"),
        ({}, "an object"),
        ((), "something else"),
    ],
)
def test_a_wrong_value_is_described_and_never_repeated_at_length(value: Any, described: str) -> None:
    error = fields.wrong(value, "a.b", "an apple")
    assert str(error) == f"a.b must be an apple, and is {described}"
    assert (error.status, error.code, error.parameter) == (400, "invalid_value", "a.b")


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b"[1]", "the body must be a JSON object, and is an array", "invalid_json"),
        (b"{", "the body is not valid JSON: ", "invalid_json"),
    ],
)
def test_a_body_that_is_no_object_is_refused_with_the_reason(body: bytes, message: str, code: str) -> None:
    found, *rest = refusal(fields.parse_body, body)
    assert found.startswith(message)
    assert rest == [code, ""]


@pytest.mark.parametrize(
    ("read", "values", "refused"),
    [
        (fields.as_object, [{}], [None, []]),
        (fields.as_text, ["", "a"], [None, 1]),
        (fields.as_name, ["a"], [None, "", 1]),
    ],
)
def test_a_value_is_of_the_type_that_it_is_read_as(
    read: Callable[..., Any], values: list[Any], refused: list[Any]
) -> None:
    assert [read(value, "a") for value in values] == values
    assert {refusal(read, value, "a")[2] for value in refused} == {"a"}


@pytest.mark.parametrize(
    ("read", "options", "values", "refused"),
    [
        (fields.flag, {}, {None: False, False: False, True: True}, [0, "true"]),
        (fields.text, {}, {None: "", "": "", "a": "a"}, [0, []]),
        (fields.integer, {"min_value": 1}, {None: None, 1: 1, 2: 2}, [0, True, 1.0, "1"]),
        (fields.number, {}, {None: None, 0: 0.0, 1e9: 1e9}, [-0.1, True, "1", float("inf"), 10**400]),
        (fields.number, {"max_value": 1}, {1: 1.0, 0.5: 0.5}, [1.1, float("nan")]),
    ],
)
def test_a_parameter_is_absent_valid_or_refused(
    read: Callable[..., Any], options: Any, values: dict[Any, Any], refused: list[Any]
) -> None:
    found = [read({"a": value}, "a", **options) for value in values]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values.values()]
    assert read({}, "a", **options) == read({"a": None}, "a", **options)
    for value in refused:
        assert refusal(read, {"a": value}, "a", **options)[1:] == ("invalid_value", "a")


@pytest.mark.parametrize(
    ("read", "options", "expected"),
    [
        (fields.integer, {"min_value": -1}, "an integer from -1 on, and is -2"),
        (fields.number, {}, "a number from 0 on, and is -2"),
        (fields.number, {"max_value": 1}, "a number from 0 to 1, and is -2"),
        (fields.array, {}, "an array, and is -2"),
        (fields.text, {}, "a string, and is -2"),
    ],
)
def test_a_refusal_names_the_values_that_are_possible(
    read: Callable[..., Any], options: Any, expected: str
) -> None:
    assert refusal(read, {"a": -2}, "a", **options)[0] == f"a must be {expected}"


def test_a_parameter_inside_of_another_is_refused_with_its_full_name() -> None:
    assert fields.array({"a": [1]}, "a", "b.a") == [1]
    assert (fields.array({}, "a"), fields.array({"a": None}, "a")) == ((), ())
    assert refusal(fields.array, {"a": 1}, "a", "b.a")[2] == "b.a"
    assert refusal(fields.text, {"a": 1}, "a", "b.a")[2] == "b.a"


def test_parts_of_text_are_joined_by_newlines() -> None:
    kinds = ("text", "input_text", "output_text")
    parts: list[Any] = [{"type": kind, "text": kind} for kind in kinds]
    joined = fields.joined_text(["a", *parts, {"type": "refusal", "refusal": "no"}], "content")
    assert joined == "a\ntext\ninput_text\noutput_text\nno"
    assert fields.joined_text("a", "content") == "a"


@pytest.mark.parametrize(
    ("content", "message", "code", "parameter"),
    [
        (None, "c must be a string or an array of parts, and is null", "invalid_value", "c"),
        ([1], "c[0] must be an object, and is 1", "invalid_value", "c[0]"),
        (["a", {}], "c[1].type must be a string, and is null", "invalid_value", "c[1].type"),
        ([{"type": "text"}], "c[0].text must be a string, and is null", "invalid_value", "c[0].text"),
        (
            [{"type": "refusal"}],
            "c[0].refusal must be a string, and is null",
            "invalid_value",
            "c[0].refusal",
        ),
        (
            [{"type": "x" * 60}],
            f"c[0]: it is of the type {'x' * 50!r}, and only text is taken there",
            "unsupported_content",
            "c[0]",
        ),
    ],
)
def test_other_content_than_text_is_refused(content: Any, message: str, code: str, parameter: str) -> None:
    assert refusal(fields.joined_text, content, "c") == (message, code, parameter)
