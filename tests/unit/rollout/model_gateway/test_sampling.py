"""Parameters that do nothing are noted once each, however many an agent makes up."""

import logging

import pytest

from aworld_train.rollout.model_gateway import sampling


def test_a_parameter_that_does_nothing_is_noted_once_and_so_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sampling, "_ignored", set())
    monkeypatch.setattr(sampling, "_MAX_NAMES", 2)
    caplog.set_level(logging.DEBUG, sampling.__name__)
    for _ in range(2):
        sampling.refuse_changes({"model": "m", "seed": 1, "user": "u", "store": True}, frozenset({"model"}))
    names = [name for name in ("model", "seed", "user", "store") if repr(name) in caplog.text]
    assert (names, len(caplog.records)) == (["seed", "user"], 2)
