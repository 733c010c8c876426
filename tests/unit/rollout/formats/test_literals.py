"""Values that are not quite JSON are read up to their end, or not at all."""

import json
from typing import Any

import pytest

from aworld_train.rollout.formats.literals import (
    Notation,
    delimited,
    items_at,
    pairs_at,
    python_string_at,
    value_at,
)

PYTHON = Notation(python_string_at)
GEMMA = Notation(delimited("<'>"), bare_keys=True)


@pytest.mark.parametrize(
    ("notation", "text", "value"),
    [
        (PYTHON, "'a\\'\\n' ", "a'\n"),
        (PYTHON, '"a\'\nb\rc"', "a'\nb\rc"),
        (PYTHON, "[ ]", []),
        (PYTHON, "[1, [2.5e1 ,-3],]", [1, [25.0, -3]]),
        (PYTHON, "{'a' : TRUE, 'b': [False,None], \"c\": null,}", {"a": True, "b": [False, None], "c": None}),
        (PYTHON, "{}", {}),
        (PYTHON, "{'a': 1, 'a': 2}", {"a": 2}),
        (GEMMA, "{a-b: <'>x, 'y<'> ,<'>c d<'>:1}", {"a-b": "x, 'y", "c d": 1}),
    ],
)
def test_a_value_is_read_up_to_its_end(notation: Notation, text: str, value: Any) -> None:
    assert value_at(f"-  {text}.", 1, notation) == (value, len(f"-  {text}".rstrip()))


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        *((PYTHON, text) for text in ("", "'a", "'\\x'", "'\0'", "01", "nonesuch", "x", "(1)")),
        *(
            (PYTHON, text)
            for text in ("[1", "[1 2]", "[,]", "[x]", "{'a' 1}", "{'a': 1 'b': 2}", "{a: 1}", "{1: 2}")
        ),
        *((GEMMA, text) for text in ("<'>a", "{a:b}", "{:1}", "{a 1}", "{<'>a:1}")),
    ],
)
def test_what_is_broken_has_no_value(notation: Notation, text: str) -> None:
    assert value_at(text, 0, notation) is None


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{'a':", "}")])
def test_values_are_nested_up_to_a_depth(opening: str, closing: str) -> None:
    inner = "[" if opening == "[" else "{"
    texts = [opening * (depth - 1) + inner + closing * depth for depth in (50, 51)]
    assert [value_at(text, 0, PYTHON) is not None for text in texts] == [True, False]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (")", {}),
        (f"a={'[' * 49}{']' * 49})", {"a": json.loads("[" * 49 + "]" * 49)}),
        (f"a={'[' * 50}{']' * 50})", None),
        ("a = 1, _b2='x' )", {"a": 1, "_b2": "x"}),
        ("'a'=1)", {"a": 1}),
        ("2a=1)", None),
        ("a-b=1)", None),
        ("a:1)", None),
        ("a=1", None),
    ],
)
def test_the_arguments_of_a_call_have_identifiers_as_keys(text: str, arguments: Any) -> None:
    found = (arguments, len(text)) if arguments is not None else None
    assert pairs_at(text, 0, ")", "=", PYTHON) == found


def test_marks_may_have_several_characters() -> None:
    assert items_at("1,2>>.", 0, ">>", PYTHON, 0) == ([1, 2], 5)
    assert pairs_at("'a' => 1>>.", 0, ">>", "=>", PYTHON) == ({"a": 1}, 10)
