"""Selects the finished groups of episodes that form a training batch.

Unlike VeRL's replay buffer it looks every 50 ms instead of every 2 s, leaves out groups with too few healthy episodes,
and stops waiting when a process that plays episodes has died. Where sampling runs ahead, it leaves out episodes with a
token of too old weights too, and has other tasks played in place of groups that these leave too small.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.trained_rows import report_dropped

_POLL_SECONDS = 0.05
_MOST_FAILED_BATCHES = 3  # whose tasks are replaced by others in one step, where no group is healthy


class _Watching(ReplayBuffer):  # type: ignore[misc]
    """Looks at the queue often, and only while there is somebody left to change it."""

    def __init__(self, **kwargs: Any):
        super().__init__(poll_interval=_POLL_SECONDS, **kwargs)
        self._min_group = int(self.sampler_kwargs.get("min_group", 1))
        self._too_few = f"its group has fewer than {self._min_group} healthy episodes"

    def _nothing_left(self) -> RuntimeError:
        return RuntimeError(
            f"no group has {self._min_group} healthy episodes: nothing to train on; "
            "traces/episodes.jsonl says how each one ended"
        )

    def _sync_metadata_from_transfer_queue(self) -> None:
        liveness.check()
        super()._sync_metadata_from_transfer_queue()


class GroupSampler(_Watching, ReplayBuffer):  # type: ignore[misc]
    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, Any]],
    ) -> Any:
        if partition_id != "train":
            return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        healthy = _episodes_of_groups(partition_snapshot)
        chosen = set(selected_prompt_uids)
        small = {uid for uid in chosen if 0 < healthy[uid] < self._min_group}
        if small:
            report_dropped(small, self._too_few)
            self._clear_groups(partition_id, small)
            partition_snapshot = {
                k: tag for k, tag in partition_snapshot.items() if k.split("_")[0] not in small
            }
        if not any(healthy[uid] for uid in chosen - small):
            raise self._nothing_left()
        return super()._materialize_batch(
            partition_id, [u for u in selected_prompt_uids if u not in small], partition_snapshot
        )


class AsyncGroupSampler(_Watching, ReplayBufferAsync):  # type: ignore[misc]
    """``max_staleness`` counts versions from the weights that a step trains back to the oldest of an episode's."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        self._lost = Counter({"training/stale_episodes": 0, "training/stale_tokens": 0})
        self._failures, self._batch_size = 0, batch_size
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return batch, {**metrics, **self._lost} if partition_id == "train" else metrics

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        if partition_id == "val":
            return super()._terminal_eviction_reasons(global_steps, partition_id)
        rows = self.partitions[partition_id]
        ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
        oldest = global_steps - 1 - int(self.sampler_kwargs["max_staleness"])
        stale = {
            _episode(key)
            for key, tag in rows.items()
            if _group(key) in ended and (version := tag["min_global_steps"]) is not None and version < oldest
        }
        before = _episodes_of_groups(rows)
        self._leave_out(partition_id, stale, "it has a token of weights older than trainer.async.staleness")
        after = _episodes_of_groups(rows)
        small = {uid for uid in ended if after[uid] < self._min_group}
        too_old = {uid for uid in small if before[uid] >= self._min_group}
        report_dropped(small, self._too_few)
        self._failures += len(small - too_old)
        if self._failures >= _MOST_FAILED_BATCHES * self._batch_size and small == ended:
            raise self._nothing_left()
        return too_old, set(), small - too_old, Counter()

    def _leave_out(self, partition_id: str, episodes: set[str], reason: str) -> None:
        if not episodes:
            return
        report_dropped(episodes, reason)
        rows = self.partitions[partition_id]
        keys = [key for key in rows if _episode(key) in episodes]
        tokens = sum(rows.pop(key)["response_len"] for key in keys)
        tq.kv_clear(partition_id=partition_id, keys=keys)
        self._lost.update({"training/stale_episodes": len(episodes), "training/stale_tokens": tokens})


def _group(key: str) -> str:
    return key.split("_")[0]


def _episode(key: str) -> str:
    """A key is {uid}_{session}_{index}: one episode may have several rows."""
    return key.rsplit("_", 1)[0]


def _episodes_of_groups(rows: Iterable[str]) -> Counter[str]:
    return Counter(map(_group, {_episode(key) for key in rows}))
