"""Which episodes become a training batch: whole groups of at least two healthy ones, and never nothing."""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl import liveness, sampler
from aworld_train.adapter.verl.sampler import AsyncGroupSampler, GroupSampler

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


class RewardQueue:
    """VeRL's queue with finished groups by the rewards of their episodes, and the tasks played in place of others."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, groups: dict[str, list[float]], others: list[list[float]]
    ):
        self.tags: dict[str, Any] = {}
        self.rewards: dict[str, float] = {}
        self.others = iter(enumerate(others))
        self.reported: list[Any] = []
        for uid, rewards in groups.items():
            self.add(uid, rewards)
        monkeypatch.setattr(sampler.tq, "kv_clear", self.clear)
        monkeypatch.setattr(sampler.tq, "kv_list", lambda: {"train": dict(self.tags)})
        monkeypatch.setattr(sampler.tq, "kv_batch_get", self.read)
        monkeypatch.setattr(sampler, "report_dropped", lambda *arguments: self.reported.append(arguments))

    def add(self, uid: str, rewards: list[float]) -> None:
        self.tags[uid] = {"is_prompt": True, "status": "finished", "global_steps": 1}
        for session, reward in enumerate(rewards):
            for row in range(2):
                self.tags[f"{uid}_{session}_{row}"] = {"min_global_steps": 2, "response_len": 5}
                self.rewards[f"{uid}_{session}_{row}"] = reward

    def clear(self, *, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.tags.pop(key)

    def read(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        scores = [torch.tensor([0.0, self.rewards[key]]) for key in keys]
        return {"rm_scores": torch.nested.as_nested_tensor(scores, layout=torch.jagged)}

    def play(self, tasks: int) -> None:
        for _ in range(tasks):
            number, rewards = next(self.others)
            self.add(f"other{number}", rewards)

    def sample(self, kind: Any, size: int, **settings: Any) -> tuple[set[str], dict[str, Any], Any]:
        options = OPTIONS | {"refill_fn": self.play}
        if kind is AsyncGroupSampler:
            options |= {"trainer_mode": "separate_async", "max_off_policy_threshold": None}
            settings["max_staleness"] = 1
        made = kind(**options, sampler_kwargs={"min_group": 2, **settings})
        batch, metrics = made.sample(global_steps=3, partition_id="train", batch_size=size)
        return groups(batch), metrics, made


KINDS = pytest.mark.parametrize("kind", [GroupSampler, AsyncGroupSampler])


@KINDS
@pytest.mark.parametrize(("equal_group", "chosen"), [("keep", {"a", "b"}), ("drop", {"a"})])
def test_a_group_with_equal_rewards_is_kept_or_dropped(
    kind: Any, equal_group: str, chosen: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = RewardQueue(monkeypatch, {"a": [0, 1], "b": [1, 1]}, [])
    assert queue.sample(kind, 2, equal_group=equal_group)[0] == chosen
    dropped = [(set(uids), reason) for uids, reason in queue.reported if uids]
    assert dropped == ([] if equal_group == "keep" else [({"b"}, sampler._EQUAL)])
    assert queue.tags.keys() == {
        f"{uid}_{session}_{row}" for uid in chosen for session in "01" for row in "01"
    }


@KINDS
def test_a_step_that_has_no_other_group_keeps_them(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = RewardQueue(monkeypatch, {"a": [1, 1], "b": [0, 0, 0]}, [])
    assert queue.sample(kind, 2, equal_group="drop")[0] == {"a", "b"}


@KINDS
def test_another_task_is_played_for_a_group_with_equal_rewards(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = RewardQueue(monkeypatch, {"a": [0, 1], "b": [1, 1]}, [[0, 0], [0, 1]])
    chosen, metrics, _ = queue.sample(kind, 2, equal_group="resample", max_resamples=3)
    assert chosen == {"a", "other1"}
    assert metrics["training/resampled_groups"] == 2
    assert "training/rollout_failure/evicted_samples" not in metrics


@KINDS
def test_tasks_are_resampled_up_to_the_limit_which_is_said(
    kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = RewardQueue(monkeypatch, {"a": [0, 1], "b": [1, 1]}, [[0, 0]] * 9)
    chosen, metrics, _ = queue.sample(kind, 2, equal_group="resample", max_resamples=1)
    assert chosen == {"a"}
    assert metrics["training/resampled_groups"] == 2
    assert "2 tasks were played in place of groups with equal rewards" in caplog.text


@KINDS
def test_rewards_are_read_once_for_the_curriculum(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = RewardQueue(monkeypatch, {"a": [0, 1], "b": [1, 1]}, [[0.5, 0]])
    _, _, made = queue.sample(kind, 2, equal_group="resample", max_resamples=1, curriculum=True)
    assert made.rewards == {"a": [0, 1], "b": [1, 1], "other0": [0.5, 0]}
    made.rewards.clear()
    made._sync_metadata_from_transfer_queue()
    made._read_rewards("train")
    assert made.rewards == {}


@given(
    groups=st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=3), min_size=1, max_size=5),
    others=st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=3), min_size=40, max_size=40),
)
def test_as_many_tasks_are_played_as_it_takes_and_no_more(
    groups: list[list[float]], others: list[list[float]]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        queue = RewardQueue(monkeypatch, {f"g{number}": group for number, group in enumerate(groups)}, others)
        chosen, metrics, _ = queue.sample(GroupSampler, len(groups), equal_group="resample", max_resamples=2)
        played = metrics["training/resampled_groups"]
        differing = sum(len(set(group)) > 1 for group in [*groups, *others[:played]])
        assert played <= 2 * len(groups)
        assert differing == len(groups) or played == 2 * len(groups)
        assert len(chosen) == (differing or len(groups))


def queue_of(groups: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A queue that holds groups by the oldest version of each episode; a group with None has lost a session."""
    held: dict[str, Any] = {}
    for uid, versions in groups.items():
        add(held, uid, versions)

    def clear(*, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            held.pop(key)

    monkeypatch.setattr(sampler.tq, "kv_clear", clear)
    monkeypatch.setattr(sampler.tq, "kv_list", lambda: {"train": dict(held)})
    return held


def add(held: dict[str, Any], uid: str, versions: list[Any]) -> None:
    status = "failure" if None in versions else "finished"
    held[uid] = {"is_prompt": True, "status": status, "global_steps": 1}
    for session, version in enumerate(versions):
        if version is not None:
            held[f"{uid}_{session}_0"] = {"min_global_steps": version, "response_len": 5}


def sample(held: dict[str, Any], step: int, replaced: Any = None, size: int = 1) -> tuple[Any, Any]:
    options = OPTIONS | {"trainer_mode": "separate_async", "max_off_policy_threshold": None}
    made = AsyncGroupSampler(
        **options | {"refill_fn": replaced}, sampler_kwargs={"min_group": 2, "max_staleness": 1}
    )
    batch, metrics = made.sample(global_steps=step, partition_id="train", batch_size=size)
    return sorted(batch.keys), metrics


def test_an_episode_with_a_token_of_too_old_weights_is_left_out_with_its_cause_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sampler, "report_dropped", lambda *arguments: reported.append(arguments))
    held = queue_of({"a": [0, 1, 2]}, monkeypatch)
    assert sample(held, 3) == (
        ["a_1_0", "a_2_0"],
        {"training/stale_episodes": 1, "training/stale_tokens": 5},
    )
    assert [arguments for arguments in reported if arguments[0]] == [
        ({"a_0"}, "it has a token of weights older than trainer.async.staleness")
    ]
    assert held.keys() == {"a_1_0", "a_2_0"}, "the trained rows stay until the step ends"


def test_another_task_is_played_for_a_group_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    held = queue_of({"a": [0, 0, 2], "b": [2, None, None], "c": [2, 2, None]}, monkeypatch)
    replaced: list[int] = []

    def play(tasks: int) -> None:
        replaced.append(tasks)
        add(held, "d", [2, 2, 2])

    keys, metrics = sample(held, 3, play, size=2)
    assert {key.split("_")[0] for key in keys} == {"c", "d"}
    assert replaced == [2]
    assert metrics["training/stale_episodes"] == 2
    assert metrics["training/off_policy/evicted_samples"] == 1
    assert metrics["training/rollout_failure/evicted_samples"] == 1


def test_tasks_are_not_replaced_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    held, number = queue_of({"a": [2, None]}, monkeypatch), iter(range(10))
    with pytest.raises(RuntimeError, match="nothing to train on"):
        sample(held, 3, lambda tasks: add(held, f"b{next(number)}", [None, 2]))


@given(
    step=st.integers(1, 6),
    groups=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6),
)
def test_no_trained_row_is_older_than_the_bound(step: int, groups: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        played = {f"g{number}": [min(v, step - 1) for v in group] for number, group in enumerate(groups)}
        held = queue_of(played, monkeypatch)
        tags = dict(held)
        number = iter(range(1000))

        def play(tasks: int) -> None:
            for _ in range(tasks):
                add(held, f"n{next(number)}", [step - 1] * 2)
            tags.update(held)

        keys, _ = sample(held, step, play, size=len(groups))
        assert keys
        assert all(step - 1 - tags[key]["min_global_steps"] <= 1 for key in keys)
        sizes = Counter(key.split("_")[0] for key in keys)
        assert len(sizes) == len(groups)
        assert min(sizes.values()) >= 2


class Simulation:
    """A run whose episodes and updates take some of the given seconds each, by a clock that the waiting sampler turns.

    ``slots`` episodes are played at a time, in groups of two, with the weights that are there when they begin.
    """

    def __init__(self, slots: int, seconds: list[int], bound: int):
        self.clock, self.version, self.step = 0, 0, 0
        self._slots, self._seconds = slots, itertools.cycle(seconds)
        self._held: dict[str, Any] = {}
        self._waiting: list[tuple[str, int]] = []
        self._playing: list[tuple[int, str, int, int]] = []
        self._numbers = itertools.count()
        simulation = self

        class Sampler(AsyncGroupSampler):
            def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
                simulation.advance(1)
                return last_debug_time

        self.sampler = Sampler(
            **OPTIONS
            | {"trainer_mode": "separate_async", "max_off_policy_threshold": None, "refill_fn": self.play},
            sampler_kwargs={"min_group": 2, "max_staleness": bound},
        )

    def play(self, tasks: int) -> None:
        for _ in range(tasks):
            uid = f"t{next(self._numbers)}"
            self._held[uid] = {"is_prompt": True, "status": "running", "global_steps": self.step}
            self._waiting += [(uid, session) for session in range(2)]

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock += 1
            while self._waiting and len(self._playing) < self._slots:
                uid, session = self._waiting.pop(0)
                end = self.clock + next(self._seconds)
                heapq.heappush(self._playing, (end, uid, session, self.version))
            while self._playing and self._playing[0][0] <= self.clock:
                _, uid, session, version = heapq.heappop(self._playing)
                self._held[f"{uid}_{session}_0"] = {"min_global_steps": version, "response_len": 5}
                if f"{uid}_{1 - session}_0" in self._held:
                    self._held[uid]["status"] = "finished"

    def train(self, steps: int, batch: int, warmup: int) -> Iterator[tuple[list[int], Any]]:
        """The staleness of each row of each step, and the step's counts."""
        queue = SimpleNamespace(kv_list=lambda: {"train": dict(self._held)}, kv_clear=self._clear)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr("verl.trainer.ppo.v1.replay_buffer.tq", queue)
            monkeypatch.setattr(sampler, "tq", queue)
            self.play(warmup * batch)
            for self.step in range(1, steps + 1):
                self.play(batch)
                rows, counts = self.sampler.sample(self.step, "train", batch)
                yield [self.version - self._held[key]["min_global_steps"] for key in rows.keys], counts
                self._clear(partition_id="train", keys=rows.keys)
                self.advance(next(self._seconds))
                self.version = self.step

    def _clear(self, *, partition_id: str, keys: list[str]) -> None:
        self._held = {key: tag for key, tag in self._held.items() if key not in keys}


SPEEDS = {
    "slots": st.integers(1, 8),
    "seconds": st.lists(st.one_of(st.integers(1, 3), st.integers(1, 60)), min_size=3, max_size=30),
    "batch": st.integers(1, 4),
}


@given(bound=st.integers(1, 3), data=st.data(), **SPEEDS)
def test_however_fast_samplers_tools_and_trainer_are_the_bound_holds(
    bound: int, slots: int, seconds: list[int], batch: int, data: Any
) -> None:
    warmup = data.draw(st.integers(1, bound))
    for rows, _ in Simulation(slots, seconds, bound).train(8, batch, warmup):
        assert len(rows) == 2 * batch
        assert min(rows) >= 0 and max(rows) <= bound


def test_without_the_check_the_simulated_run_trains_on_weights_that_are_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [1, 2, 1, 40, 1, 3, 1]
    kept = list(Simulation(8, seconds, bound=1).train(8, 2, warmup=1))
    assert {staleness for rows, _ in kept for staleness in rows} == {0, 1}, "some are sampled ahead"
    assert sum(counts["training/stale_episodes"] for _, counts in kept) > 0
    monkeypatch.setattr(AsyncGroupSampler, "_leave_out", lambda *_: None)
    unchecked = [rows for rows, _ in Simulation(8, seconds, bound=1).train(8, 2, warmup=1)]
    assert max(itertools.chain(*unchecked)) > 1
