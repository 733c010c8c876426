"""What ``store.keep`` says, and of which episodes the content is kept."""

import pytest

from aworld_train.episode.figures import figures_of
from aworld_train.store.retention import parse_keep

RIGHT = {"outcome": "answered", "reward": 1.0, "scores": {"acc": 1.0}}


@pytest.mark.parametrize(
    "text", ["", "some", "sample", "sample:", "sample:2", "sample:-1", "sample:x", "ALL"]
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"store\.keep"):
        parse_keep(text)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, False),
        ({"outcome": "overlong"}, True),
        ({"scores": {"acc": 0.5}}, True),
        # A composite may take a part of a right answer's reward.
        ({"reward": 0.8}, False),
        ({"reward": None, "scores": {}}, True),
    ],
)
def test_failures_are_what_was_not_answered_scored_or_right(changes: dict[str, object], kept: bool) -> None:
    assert parse_keep("failures").content_of("id", figures_of(RIGHT | changes)) is kept


def test_a_sample_is_of_about_its_share_and_the_same_again() -> None:
    keep = parse_keep("sample:0.1")
    kept = [number for number in range(5000) if keep.content_of(str(number), figures_of(RIGHT))]
    assert 400 < len(kept) < 600
    assert kept == [number for number in range(5000) if keep.content_of(str(number), figures_of(RIGHT))]


def test_all_and_off() -> None:
    assert parse_keep("all").content_of("id", figures_of(RIGHT))
    assert not parse_keep("off").is_on
    assert parse_keep("sample:0").is_on
