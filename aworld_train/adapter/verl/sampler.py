"""Selects the finished groups of episodes that form a training batch.

Unlike VeRL's replay buffer it looks every 50 ms instead of every 2 s, leaves out groups with too few healthy episodes,
drops or replaces groups with equal rewards (``rollout.equal_group``), and stops waiting when a process that plays
episodes has died. Where sampling runs ahead, it leaves out episodes with a token of too old weights too, and has other
tasks played in place of groups that these leave too small.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.trained_rows import report_dropped
from aworld_train.recipe.schema import EqualGroup

_POLL_SECONDS = 0.05
_MOST_FAILED_BATCHES = 3  # whose tasks are replaced by others in one step, where no group is healthy
_SAME_REWARD = 1e-6
_FAILED = "training/rollout_failure/evicted_samples"
_EQUAL = "all rewards of its group are equal (rollout.equal_group)"
_logger = logging.getLogger(__name__)


class _GroupRules(ReplayBuffer):  # type: ignore[misc]
    """What both samplers leave out and replace, and, for the curriculum, the ``rewards`` of tasks that have ended."""

    def __init__(self, **kwargs: Any):
        super().__init__(poll_interval=_POLL_SECONDS, **kwargs)
        settings = self.sampler_kwargs
        self._min_group = int(settings.get("min_group", 1))
        self._too_few = f"its group has fewer than {self._min_group} healthy episodes"
        self._equal_group = EqualGroup(settings.get("equal_group", "keep"))
        self._max_resamples = int(settings.get("max_resamples", 1))
        self._has_curriculum = bool(settings.get("curriculum"))
        self._batch_size = self._resampled = 0
        self._is_capped = False
        self._ended: set[str] = set()
        self._row_rewards: dict[str, float] = {}
        self.rewards: dict[str, list[float]] = {}

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        self._batch_size, self._resampled, self._is_capped = batch_size, 0, False
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == "train" and self._equal_group is EqualGroup.resample:
            metrics["training/resampled_groups"] = self._resampled
            # VeRL counts all groups in whose place others are played as failed.
            if failed := metrics.pop(_FAILED, 0) - self._resampled:
                metrics[_FAILED] = failed
            if self._is_capped:
                _logger.warning(
                    "step %d: %d tasks were played in place of groups with equal rewards, and there are still such "
                    "groups; rollout.max_resamples=%d batches allows no more",
                    *(global_steps, self._resampled, self._max_resamples),
                )
        return batch, metrics

    def _read_rewards(self, partition_id: str) -> None:
        """Read those of the groups that have ended since the last look."""
        if not self._has_curriculum and self._equal_group is EqualGroup.keep:
            return
        ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
        groups = ended - self._ended
        new = [key for key in self.partitions[partition_id] if _group(key) in groups]
        read = {}
        if new:
            columns = tq.kv_batch_get(keys=new, partition_id=partition_id, select_fields=["rm_scores"])
            read = {
                key: float(scores.sum())
                for key, scores in zip(new, columns["rm_scores"].unbind(), strict=True)
            }
        kept = {key: reward for key, reward in self._row_rewards.items() if _group(key) in ended}
        if self._has_curriculum:
            self.rewards |= {uid: [] for uid in groups}
            for episode, reward in {_episode(key): reward for key, reward in read.items()}.items():
                self.rewards[_group(episode)].append(reward)
        self._row_rewards, self._ended = kept | read, ended

    def _equal(self, rows: Iterable[str]) -> set[str]:
        """The groups of several episodes in which all rows have the same reward."""
        if self._equal_group is EqualGroup.keep:
            return set()
        rewards: dict[str, list[float]] = {}
        for key in rows:
            if key in self._row_rewards:
                rewards.setdefault(_group(key), []).append(self._row_rewards[key])
        counts = _episodes_of_groups(rows)
        return {
            uid
            for uid, values in rewards.items()
            if counts[uid] > 1 and max(values) - min(values) <= _SAME_REWARD
        }

    def _to_resample(self, partition_id: str) -> set[str]:
        """The groups that have ended with equal rewards, as far as others may be played in their place."""
        if self._equal_group is not EqualGroup.resample:
            return set()
        equal = sorted(self._equal(list(self.partitions[partition_id])))
        left = self._max_resamples * self._batch_size - self._resampled
        self._is_capped |= len(equal) > left
        self._resampled += min(len(equal), left)
        report_dropped(equal[:left], _EQUAL)
        return set(equal[:left])

    def _without(
        self, partition_id: str, groups: set[str], rows: dict[str, dict[str, Any]], reason: str
    ) -> dict[str, dict[str, Any]]:
        """The rows without those of ``groups``, which are removed from VeRL's queue."""
        if not groups:
            return rows
        report_dropped(groups, reason)
        self._clear_groups(partition_id, groups)
        return {key: tag for key, tag in rows.items() if _group(key) not in groups}

    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, Any]],
    ) -> Any:
        if partition_id != "train":
            return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        healthy, selected = _episodes_of_groups(partition_snapshot), set(selected_prompt_uids)
        small = {uid for uid in selected if 0 < healthy[uid] < self._min_group}
        partition_snapshot = self._without(partition_id, small, partition_snapshot, self._too_few)
        selected -= small
        if not any(healthy[uid] for uid in selected):
            raise self._nothing_left()
        rows = [key for key in partition_snapshot if _group(key) in selected]
        equal = self._equal(rows)
        if equal and any(_group(key) not in equal for key in rows):
            partition_snapshot = self._without(partition_id, equal, partition_snapshot, _EQUAL)
            selected -= equal
        return super()._materialize_batch(
            partition_id, [uid for uid in selected_prompt_uids if uid in selected], partition_snapshot
        )

    def _nothing_left(self) -> RuntimeError:
        return RuntimeError(
            f"no group has {self._min_group} healthy episodes: nothing to train on; "
            "traces/episodes.jsonl says how each one ended"
        )

    def _sync_metadata_from_transfer_queue(self) -> None:
        liveness.check()
        super()._sync_metadata_from_transfer_queue()


class GroupSampler(_GroupRules, ReplayBuffer):  # type: ignore[misc]
    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        if partition_id == "val":
            return set(), set(), set(), Counter()
        self._read_rewards(partition_id)
        # VeRL plays one task for each group of the third kind.
        return set(), set(), self._to_resample(partition_id), Counter()


class AsyncGroupSampler(_GroupRules, ReplayBufferAsync):  # type: ignore[misc]
    """``max_staleness`` counts versions from the weights that a step trains back to the oldest of an episode's."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        self._lost, self._failures = Counter({"training/stale_episodes": 0, "training/stale_tokens": 0}), 0
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return batch, {**metrics, **self._lost} if partition_id == "train" else metrics

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        if partition_id == "val":
            return super()._terminal_eviction_reasons(global_steps, partition_id)
        self._read_rewards(partition_id)
        rows = self.partitions[partition_id]
        ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
        oldest = global_steps - 1 - int(self.sampler_kwargs["max_staleness"])
        stale = {
            _episode(key)
            for key, tag in rows.items()
            if _group(key) in ended and (version := tag["min_global_steps"]) is not None and version < oldest
        }
        before = _episodes_of_groups(rows)
        self._leave_out(partition_id, stale)
        after = _episodes_of_groups(rows)
        small = {uid for uid in ended if after[uid] < self._min_group}
        too_old = {uid for uid in small if before[uid] >= self._min_group}
        report_dropped(small, self._too_few)
        self._failures += len(small - too_old)
        if self._failures >= _MOST_FAILED_BATCHES * self._batch_size and small == ended:
            raise self._nothing_left()
        return too_old, set(), (small - too_old) | (self._to_resample(partition_id) - small), Counter()

    def _leave_out(self, partition_id: str, episodes: set[str]) -> None:
        if not episodes:
            return
        report_dropped(episodes, "it has a token of weights older than trainer.async.staleness")
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
