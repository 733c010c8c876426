"""Selects the finished groups of episodes that form a training batch.

Unlike VeRL's replay buffer it looks every 50 ms instead of every 2 s, leaves out groups with too few healthy episodes,
and stops waiting when a process that plays episodes has died.
"""

from collections import Counter
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.trained_rows import report_dropped

_POLL_SECONDS = 0.05


class GroupSampler(ReplayBuffer):  # type: ignore[misc]
    def __init__(self, **kwargs: Any):
        super().__init__(poll_interval=_POLL_SECONDS, **kwargs)
        self._min_group = int(self.sampler_kwargs.get("min_group", 1))

    def _sync_metadata_from_transfer_queue(self) -> None:
        """Read the queue's state, of which VeRL waits for a change, unless there is nobody left to change it."""
        liveness.check()
        super()._sync_metadata_from_transfer_queue()

    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, Any]],
    ) -> Any:
        if partition_id != "train":
            return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        # A key is {uid}_{session}_{index}: one episode may have several rows.
        sessions = {tuple(key.split("_")[:2]) for key in partition_snapshot}
        healthy = Counter(uid for uid, _ in sessions)
        chosen = set(selected_prompt_uids)
        small = {uid for uid in chosen if 0 < healthy[uid] < self._min_group}
        if small:
            report_dropped(small, f"its group has fewer than {self._min_group} healthy episodes")
            self._clear_groups(partition_id, small)
            partition_snapshot = {
                k: tag for k, tag in partition_snapshot.items() if k.split("_")[0] not in small
            }
        if not any(healthy[uid] for uid in chosen - small):
            raise RuntimeError(
                f"no group has {self._min_group} healthy episodes: nothing to train on; "
                "traces/episodes.jsonl says how each one ended"
            )
        return super()._materialize_batch(
            partition_id, [u for u in selected_prompt_uids if u not in small], partition_snapshot
        )
