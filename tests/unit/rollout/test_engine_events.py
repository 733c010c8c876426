"""The engine's word on a worker: killed from outside, or not."""

from types import SimpleNamespace
from typing import Any

import pytest

import docker
from aworld_train.rollout.loss_evidence import killed_from_outside

DIED, ENDED = ("die", "137"), ("die", "70")


@pytest.mark.parametrize(
    ("events", "is_known", "word"),
    [
        ([DIED], True, True),
        ([("kill", None), ("die", "0")], True, True),
        ([("destroy", None)], True, True),
        ([("oom", None), DIED], True, False),
        ([DIED, ("oom", None)], True, False),
        ([ENDED, ("start", None)], True, False),
        ([], True, False),
        ([DIED], False, False),
    ],
)
def test_a_worker_was_killed_from_outside_if_it_did_not_end_itself_and_had_memory(
    monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, str | None]], is_known: bool, word: bool
) -> None:
    requests: list[dict[str, Any]] = []

    def listed(filters: dict[str, Any]) -> list[str]:
        assert filters == {"label": ["aworld-train.environment=env", "aworld-train.port=5000"]}
        return ["network"] * is_known

    def told(**options: Any) -> list[Any]:
        requests.append(options)
        return [{"Action": name, "Actor": {"Attributes": {"exitCode": code}}} for name, code in events]

    client = SimpleNamespace(networks=SimpleNamespace(list=listed), events=told)
    monkeypatch.setattr(docker, "from_env", lambda timeout: client)
    assert killed_from_outside("env", 5000, 3, 60.0) is word
    if is_known:
        waiting, over = (float(each["until"]) - float(each["since"]) for each in requests)
        assert waiting > over >= 60.0  # an end that the engine has yet to notice is waited for
        labels = ["aworld-train.environment=env", "aworld-train.number=3"]
        assert all(each["filters"] == {"type": "container", "label": labels} for each in requests)


def test_an_engine_that_is_not_there_has_seen_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert not killed_from_outside("env", 5000, 3, 60.0)
