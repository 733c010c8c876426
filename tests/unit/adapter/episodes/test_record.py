"""The record of an episode: what of a reward function's figures has a place in it."""

import math

from aworld_train.adapter.episodes.record import EpisodeRecord


def test_a_number_beyond_64_bits_is_no_figure() -> None:
    record = EpisodeRecord(1, False, 0)
    record.reward(
        1.0,
        {
            "acc": 1.0,
            "nan": math.nan,
            "most": (1 << 63) - 1,
            "pred": 10**30,
            "least": -(10**400),
            "text": "7",
        },
    )
    assert list(record.line["scores"]) == ["acc", "nan", "most"]
    assert record.line["reward"] == 1.0
