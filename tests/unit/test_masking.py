"""Values that came from the environment stand in no message."""

import json

import pytest

from aworld_train.errors import UsageError
from aworld_train.masking import mask, masked, remember


def test_a_value_becomes_its_reference_and_a_longer_one_goes_first() -> None:
    remember("secret", "${A}")
    remember("secret-two", "${B}")
    assert mask("secret-two and secret") == "${B} and ${A}"
    assert masked({"cause": ["a secret", 3, None], "n": 1.5}) == {"cause": ["a ${A}", 3, None], "n": 1.5}


@pytest.mark.parametrize("value", ['it\'s "here"\n', "naïve-päss", "back\\slash\\"])
def test_a_value_is_found_quoted_too(value: str) -> None:
    remember(value, "${A}")
    for text in (value, repr(value), json.dumps(value), json.dumps({"a": [value]})):
        assert "${A}" in mask(f"it was {text}!")


def test_host_and_port_of_an_address_are_part_of_the_value() -> None:
    remember("http://user:word@tools.internal:8000/mcp", "${URL}")
    assert (
        mask("no answer from http://user:word@tools.internal:8000/health")
        == "no answer from http://${URL}/health"
    )
    remember("http://[broken", "${OTHER}")
    assert mask("http://[broken") == "${OTHER}"


def test_short_values_are_left_in_words() -> None:
    remember("run", "${A}")
    assert mask("the run ended") == "the run ended"


def test_errors_are_masked_when_they_are_made() -> None:
    remember("s3cret-value", "${oc.env:KEY}")
    assert str(UsageError("there is no s3cret-value")) == "there is no ${oc.env:KEY}"
