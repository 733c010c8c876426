"""Which episodes become a training batch: whole groups of at least two healthy ones, and never nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.verl import liveness, sampler
from aworld_train.adapter.verl.sampler import GroupSampler

OPTIONS: dict[str, Any] = {
    "trainer_mode": "sync",
    "trainer_config": {},
    "max_off_policy_threshold": 8,
    "max_off_policy_strategy": "drop",
    "refill_fn": None,
}


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys that were removed from VeRL's transfer queue, which does not run here."""
    removed: list[str] = []
    monkeypatch.setattr(
        "verl.trainer.ppo.v1.replay_buffer.tq.kv_clear", lambda *, partition_id, keys: removed.extend(keys)
    )
    return removed


def materialize(
    episodes: dict[str, int], *, min_group: int = 2, partition: str = "train", rows: int = 1
) -> Any:
    """The batch made of groups with so many healthy episodes each, every episode with ``rows`` rows."""
    made = GroupSampler(**OPTIONS, sampler_kwargs={"min_group": min_group})
    snapshot = {
        f"{uid}_{session}_{row}": {"status": "success"}
        for uid, count in episodes.items()
        for session in range(count)
        for row in range(rows)
    }
    made.partitions[partition] = dict(snapshot)
    return made._materialize_batch(partition, list(episodes), snapshot)


def groups(batch: Any) -> set[str]:
    return {key.split("_")[0] for key in batch.keys}


def test_a_group_with_a_single_healthy_episode_is_dropped_and_reported(
    cleared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sampler, "report_dropped", lambda *arguments: reported.append(arguments))
    assert groups(materialize({"a": 8, "b": 1, "c": 2, "d": 0})) == {"a", "c"}
    assert cleared == ["b", "b_0_0", "a", "c", "d"]
    assert reported == [({"b"}, "its group has fewer than 2 healthy episodes")]


def test_several_rows_of_one_episode_are_one_episode(cleared: list[str]) -> None:
    assert groups(materialize({"a": 2, "b": 1}, rows=3)) == {"a"}


def test_without_groups_single_episodes_are_trained_on(cleared: list[str]) -> None:
    assert groups(materialize({"a": 1, "b": 1}, min_group=1)) == {"a", "b"}


def test_a_step_without_any_healthy_group_is_an_error(cleared: list[str]) -> None:
    with pytest.raises(RuntimeError, match="nothing to train on"):
        materialize({"a": 1, "b": 0})


def test_by_default_one_episode_is_enough() -> None:
    assert GroupSampler(**OPTIONS, sampler_kwargs={})._min_group == 1


def test_the_queue_is_not_looked_at_once_a_process_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GroupSampler(**OPTIONS, sampler_kwargs={})
    listed = {"val": {"a_0_0": {"status": "success"}}}
    monkeypatch.setattr("verl.trainer.ppo.v1.replay_buffer.tq", SimpleNamespace(kv_list=lambda: listed))
    made._sync_metadata_from_transfer_queue()
    assert made.partitions == listed
    monkeypatch.setattr(liveness, "_death", "the episode worker died")
    with pytest.raises(RuntimeError, match="the episode worker died"):
        made._sync_metadata_from_transfer_queue()


def test_validation_takes_every_episode(cleared: list[str]) -> None:
    assert groups(materialize({"a": 1, "b": 0}, partition="val")) == {"a"}
