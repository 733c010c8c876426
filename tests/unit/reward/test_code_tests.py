"""What `code_tests` does before and after the tool environment, and what goes between the tests and the code."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.code_tests import CodeTests, read_tests, read_verdict, without_fence
from aworld_train.reward.sandbox import BEGUN, Unsupported, pack, signed, unpack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
    | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN)
def test_plain_values_arrive_as_they_were(value: Any) -> None:
    arrived = unpack(json.loads(json.dumps(pack(value, None))), None)
    assert arrived == value
    assert repr(arrived) == repr(value)


def test_sets_arrive_and_subclasses_arrive_plain() -> None:
    class Number(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert unpack(pack({1, (2, 3), frozenset("a")}, None), None) == {1, (2, 3), frozenset("a")}
    arrived = unpack(pack(Number(3), []), None)
    assert type(arrived) is int and arrived == 3


def test_other_objects_go_by_number_or_not_at_all() -> None:
    objects: list[Any] = []
    one = object()
    packed = pack([one, 1], objects)
    assert objects == [one]
    assert unpack(packed, objects.__getitem__) == [one, 1]
    with pytest.raises(Unsupported, match="a object, which cannot be passed on"):
        pack([one], None)


KEY = "the key of one score"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("Look:\n```python\nx = 1\n```\nor\n~~~py\nx = 2\n~~~\nas you like", "x = 2\n"),
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("```python\nx = 1", "```python\nx = 1"),
    ],
)
def test_code_is_taken_out_of_its_fence(answer: str, code: str) -> None:
    assert without_fence(answer) == code


def test_a_ground_truth_has_tests_and_perhaps_a_time() -> None:
    assert read_tests('{"tests": "assert f()"}') == CodeTests("assert f()", 10.0)
    assert read_tests('{"tests": "assert f()", "timeout": 3}') == CodeTests("assert f()", 3.0)
    for truth in (
        "",
        "7",
        "null",
        '{"tests": 1}',
        '{"tests": "1", "timeout": "3"}',
        '{"tests": "1", "timeout": NaN}',
    ):
        assert isinstance(read_tests(truth), str)


@pytest.mark.parametrize(
    ("printed", "value", "step"),
    [
        (f"```\n{signed(KEY, BEGUN)}\n{signed(KEY, 'passed')}\n```", 1.0, "all tests passed"),
        (
            f"{signed(KEY, BEGUN)}\n{signed(KEY, 'failed: AssertionError: no')}",
            0.0,
            "a test failed: AssertionError: no",
        ),
        (f"{signed(KEY, BEGUN)}\npassed\n{signed('another', 'passed')}", 0.0, "ended the tests before"),
        # What was read on its way is of no use with another verdict.
        (f"{signed(KEY, BEGUN)}\n{signed(KEY, 'failed').split()[0]} passed", 0.0, "ended the tests before"),
        (f"{signed(KEY, BEGUN).split()[0]} passed", None, "did not run the tests"),
        (signed(KEY, "unusable: no Python"), None, "no Python"),
        (signed(KEY, "failed: \ud800 \u2028 \x1c é"), 0.0, "é"),
        ("passed", None, "did not run the tests; it said 'passed'"),
        ("", None, "did not run"),
    ],
)
def test_a_verdict_counts_with_its_proof_alone(printed: str, value: float | None, step: str) -> None:
    found = read_verdict(printed.encode(errors="replace").decode(), KEY, "")
    assert found.value == value
    assert step in found.steps[-1]


def test_an_environment_that_was_lost_is_named() -> None:
    assert read_verdict("", KEY, "the tool environment was lost: gone").steps == (
        "the tool environment was lost: gone",
    )
