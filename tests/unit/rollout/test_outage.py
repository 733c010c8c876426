"""Pauses between the attempts of a request that fails, with a clock that only they move."""

import random

import pytest

from aworld_train.rollout.outage import Outage


def test_pauses_become_longer_up_to_a_limit_until_the_outage_has_lasted_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    now, pauses = 1000.0, []
    outage = Outage(120.0, 10.0, now=lambda: now)
    pause = outage.pause(5.0)
    while pause is not None:
        pauses.append(pause)
        now += pause
        pause = outage.pause(0.0)
    # The last one ends exactly with the two minutes.
    assert pauses == [5.0, 1.0, 2.0, 4.0, 8.0, *[10.0] * 10]
    assert outage.seconds == 120.0
