"""VeRL's trainer, with advantages and updates by episodes, and checkpoints whose model loads elsewhere.

VeRL 0.9.1 compares, weighs and divides rows. Here an episode has one advantage and one weight in an update, however
many rows it has (``advantages``), and an update takes as many episodes as the recipe says (``mini_batches``). A
checkpoint counts as complete from when its ``data.pt`` is there, which is written last; older ones are removed after
that.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as queue
from tensordict import TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from verl import DataProto
from verl.trainer.distillation import is_distillation_enabled
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.ray_trainer import apply_kl_penalty, compute_advantage
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.workers.utils.padding import response_to_nested

from aworld_train.adapter.episodes.curriculum import DifficultyOrder
from aworld_train.adapter.verl import checkpoints
from aworld_train.adapter.verl.advantages import (
    Sample,
    bound_widths,
    by_teacher,
    correct,
    episodes_of,
    estimate,
    in_groups,
    samples_of,
    scored_once,
    shares_of_tokens,
)
from aworld_train.adapter.verl.attention import TRIE
from aworld_train.adapter.verl.compose import TRAINERS
from aworld_train.adapter.verl.mini_batches import arrange
from aworld_train.adapter.verl.trained_rows import report_replayed, report_trained, wait_until_written
from aworld_train.recipe.schema import Mode

_COMPARED = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "reinforce_plus_plus_baseline")
"""Estimators that give some episode of a group an advantage if the rewards of the group differ."""
_TOKENS = ("forwarded_tokens", "saved_tokens")
"""What the engine counts where it computes shared prefixes once."""
_COUNTS = [
    f"training/{name}"
    for name in (
        *("rows", "episodes", "updates", "padding_rows", "clipped_updates", "groups", "equal_groups"),
        *("rejected_tokens", "rejected_episodes", "stale_episodes", "stale_tokens"),
        *_TOKENS,
        "resampled_groups",
    )
]
_MEAN_OF_MEANS = "seq-mean-token-mean"
_READ = (
    "uid",
    "response_mask",
    "rm_scores",
    "rollout_log_probs",
    "old_log_probs",
    "ref_log_prob",
    "values",
    "extra_fields",
    "teacher_logprobs",
)


class EpisodeUpdates(PPOTrainer):  # type: ignore[misc]
    """What VeRL's trainers of all modes get in place of their own, by inheritance from this class first."""

    mode: Mode
    train_dataloader: Any

    def _build_replay_buffer(self) -> Any:
        # Where VeRL asks for the mode, its own name of it counts.
        self.trainer_mode = self.mode.value
        self.parameter_sync_step = self.config.trainer.v1[self.trainer_mode].get("parameter_sync_step", 1)
        return super()._build_replay_buffer()

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self._curriculum: DifficultyOrder | None = None
        if self.config.trainer.v1.sampler.sampler_kwargs.curriculum:
            data, loader = self.config.data, self.train_dataloader
            self._curriculum = DifficultyOrder(len(self.train_dataset), data.seed, data.shuffle)
            self.train_dataloader = StatefulDataLoader(
                self.train_dataset,
                batch_size=loader.batch_size,
                drop_last=True,
                collate_fn=loader.collate_fn,
                sampler=self._curriculum,
            )

    def _fetch_one_gen_batch(self) -> Any:
        batch = super()._fetch_one_gen_batch()
        if self._curriculum is not None:
            self._curriculum.begin(batch["uid"])
        return batch

    def _reissue_inflight_prompts(self, partition_id: str = "train") -> int:
        """Begin the tasks again that were under way at the checkpoint from which the run continues."""
        tags = (queue.kv_list(partition_id) or {}).get(partition_id, {})
        groups = {key: tag["status"] for key, tag in tags.items() if tag.get("is_prompt")}
        # The rows of the step that the checkpoint ended are in it, without their tasks.
        if trained := [key for key in tags if key.split("_")[0] not in groups]:
            queue.kv_clear(keys=trained, partition_id=partition_id)
        report_replayed([key for key, status in groups.items() if status in ("pending", "running")])
        return int(super()._reissue_inflight_prompts(partition_id))

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
        self._counts = Counter[str]()
        batch = super().step(metrics, timing_raw)
        metrics |= self._counts
        return batch

    def _step_once(self, metrics: dict[str, Any], *arguments: Any) -> Any:
        """One sampled batch of a step; VeRL would average its counts with those of the step's others."""
        batch = super()._step_once(metrics, *arguments)
        self._counts.update({name: metrics[name] for name in _COUNTS if name in metrics})
        if self._curriculum is not None:
            self._curriculum.end(self.replay_buffer.rewards)
            self.replay_buffer.rewards.clear()
        return batch

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *_: Any, **__: Any) -> Any:
        actor = self.config.actor_rollout_ref.actor
        ranks = self._ranks()
        rows = len(batch)
        arrangement = arrange(
            batch.keys,
            self.config.data.train_batch_size // actor.ppo_mini_batch_size // self.parameter_sync_step,
            math.lcm(*(ranks * size for size in self._pass_sizes())),
            keeps_groups=self.config.actor_rollout_ref.model.override_config.get("attn_implementation")
            == TRIE,
        )
        batch = upsample_batch_to_divisible_size(batch, arrangement.rows, self.tokenizer.eos_token_id)
        batch.reorder(arrangement.order([tag["seq_len"] for tag in batch.tags], ranks))
        self._updates = arrangement.updates
        self._episodes = arrangement.episodes
        metrics |= {
            "training/rows": rows,
            "training/episodes": self._episodes,
            "training/updates": arrangement.updates * actor.ppo_epochs,
            "training/padding_rows": arrangement.rows - rows,
        }
        return batch

    def _ranks(self) -> int:
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return int(max(group._dispatch_info["actor"])) + 1

    def _pass_sizes(self) -> list[int]:
        """Rows of one pass on one rank, where passes have a number of rows."""
        actor, critic = self.config.actor_rollout_ref.actor, self.config.critic
        sizes = [1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu]
        if self.use_critic and not critic.use_dynamic_bsz:
            sizes.append(critic.ppo_micro_batch_size_per_gpu)
        return sizes

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        algorithm = self.config.algorithm
        columns = queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_READ)
        )
        facts, teacher = columns.pop("extra_fields").tolist(), columns.pop("teacher_logprobs", None)
        mask = columns["response_mask"]
        lengths = mask.offsets().diff().tolist()
        data = DataProto(batch=columns.to_padded_tensor())
        data.non_tensor_batch["uid"] = np.array(data.batch.pop("uid").tolist(), dtype=object)
        samples = [
            sample
            for sample in samples_of(batch.keys, facts)
            if not batch.tags[sample.rows[0]].get("is_padding")
        ]
        data.batch["token_level_scores"] = scored_once(data.batch["rm_scores"], samples)
        data.batch["token_level_rewards"] = data.batch["token_level_scores"]
        episodes = [rows for rows in episodes_of(batch.keys) if not batch.tags[rows[0]].get("is_padding")]
        data, changed = self._corrected(data, lengths, episodes, metrics)
        if decay := self.config.trainer.v1.sampler.sampler_kwargs.get("age_decay"):
            # VeRL passes no other column to a policy loss, and minirl has no weights.
            parts = [fact.get("version_parts") or () for fact in facts]
            data.batch["rollout_is_weights"] = bound_widths(
                data.batch["response_mask"].shape, parts, int(self.global_steps) - 1, decay
            )
            changed.append("rollout_is_weights")
        for name in algorithm.get("gdpo_reward_keys") or ():
            data.non_tensor_batch[name] = np.array(
                [(fact.get("reward_extra_info") or {}).get(name, 0.0) for fact in facts]
            )
        if algorithm.adv_estimator in (*_COMPARED, "grpo_passk"):
            samples = in_groups(samples)
        estimate(
            data, lengths, samples, partial(_by_verl, algorithm, self.config.actor_rollout_ref.rollout.n)
        )
        metrics |= _compared(data, samples, str(algorithm.adv_estimator))
        if teacher is not None and "reward_coef" in (
            own := self.config.trainer.v1.sampler.sampler_kwargs or {}
        ):
            metrics |= _taught(data, teacher.unbind(), lengths, own["reward_coef"])
        if self.config.actor_rollout_ref.actor.loss_agg_mode == _MEAN_OF_MEANS:
            self._refuse_terms_of_rows(episodes)
            shares = shares_of_tokens(data.batch["response_mask"], batch.keys)
            data.batch["advantages"] *= shares.to(data.batch["advantages"])[:, None]
        fields = TensorDict(
            {
                name: response_to_nested(data.batch[name], mask)
                for name in ("advantages", "returns", *changed)
            },
            batch_size=len(batch),
        )
        return queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _refuse_terms_of_rows(self, episodes: Sequence[Sequence[int]]) -> None:
        """A mean of means gives episodes one weight by their advantages, which other terms of the loss do not have."""
        actor = self.config.actor_rollout_ref.actor
        terms = [
            name
            for name, is_there in (
                ("algorithm.kl_coef", actor.use_kl_loss),
                ("algorithm.entropy_coef", actor.entropy_coeff),
                ("the critic's loss", self.use_critic),
            )
            if is_there
        ]
        if terms and any(len(rows) > 1 for rows in episodes):
            raise RuntimeError(
                f"algorithm.loss_aggregation={_MEAN_OF_MEANS} would weigh {' and '.join(terms)} by rows, and episodes "
                "of this agent have several. Use token-mean or seq-mean-token-sum-norm; against the distance to the "
                "starting model there is algorithm.kl_reward_coef too."
            )

    def _corrected(
        self,
        data: DataProto,
        lengths: Sequence[int],
        episodes: Sequence[Sequence[int]],
        metrics: dict[str, Any],
    ) -> tuple[DataProto, list[str]]:
        """The batch less the KL penalty and weighed for the engine's rounding, and the columns that this changed."""
        algorithm, changed = self.config.algorithm, list[str]()
        if algorithm.use_kl_in_reward:
            data, measured = apply_kl_penalty(
                data, kl_ctrl=self.kl_ctrl_in_reward, kl_penalty=algorithm.kl_penalty
            )
            metrics |= measured
            changed.append("token_level_rewards")
        correction = algorithm.get("rollout_correction")
        if not data.batch["response_mask"].any():
            return data, changed
        if correction is not None and "rollout_log_probs" in data.batch and not correction.get("bypass_mode"):
            metrics |= correct(data, lengths, episodes, correction)
            changed += [name for name in ("response_mask", "rollout_is_weights") if name in data.batch]
        return data, changed

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        critic = self.config.critic
        batch.extra_info.update(self._updates_of(critic))
        measured = reduce_metrics(
            rename_dict(self.critic_wg.train_mini_batch(batch).get()["metrics"], "critic/")
        )
        metrics |= measured | {"perf/mfu/critic": measured.pop("critic/mfu")}
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        actor = self.config.actor_rollout_ref.actor
        likeliest, teacher_alone = self._of_teacher()
        batch.extra_info.update(
            {
                **self._updates_of(actor),
                "calculate_entropy": bool(actor.calculate_entropy or actor.entropy_coeff),
                "distillation_use_topk": likeliest,
                "distillation_only": teacher_alone,
            }
        )
        measured = rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        measured["perf/mfu/actor"] = measured.pop("actor/mfu")
        # One norm for each update, before it is clipped.
        norms = np.asarray(measured.get("actor/grad_norm", ()), dtype=float)
        metrics["training/clipped_updates"] = int((norms > actor.optim.clip_grad).sum())
        for name in (name for name in _TOKENS if f"actor/{name}" in measured):
            # A mean over ranks for each update.
            metrics[f"training/{name}"] = round(sum(measured.pop(f"actor/{name}")) * self._ranks())
        metrics |= reduce_metrics(measured)
        report_trained(int(self.global_steps), batch, self._counts["training/rows"])
        return batch

    def _save_checkpoint(self) -> None:
        settings, step = self.config.trainer, int(self.global_steps)
        folder = Path(settings.default_local_dir, f"global_step_{step}")
        place = folder / "data.pt"
        place.unlink(missing_ok=True)
        # Without a number to keep VeRL removes none, as it would before the new one is whole.
        self.actor_rollout_wg.save_checkpoint(str(folder / "actor"), None, step, max_ckpt_to_keep=None)
        if model := checkpoints.model_in(folder):
            checkpoints.complete(model, self.config.actor_rollout_ref.model)
        if self.use_critic:
            self.critic_wg.save_checkpoint(str(folder / "critic"), None, step, max_ckpt_to_keep=None)
        if self.mode is not Mode.sync:  # tasks that are under way, and rows that are still to be trained
            queue.save_checkpoint(str(folder / "transfer_queue"), metadata={"global_steps": step})
        wait_until_written()
        torch.save(self.train_dataloader.state_dict(), place)
        checkpoints.point_at(folder.parent, step)
        if settings.max_actor_ckpt_to_keep:
            checkpoints.keep_newest(folder.parent, settings.max_actor_ckpt_to_keep)
        self.checkpoint_callback.on_save(
            trainer=self, global_step=step, checkpoint_dir=str(folder), async_save=False
        )

    def _updates_of(self, role: Any) -> dict[str, Any]:
        """What a worker is told of its mini-batches; a mean over sequences is one over the episodes of an update."""
        return {
            "num_mini_batch": self._updates,
            "global_batch_size": self._episodes / self._updates,
            "epochs": role.ppo_epochs,
            "seed": role.data_loader_seed,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }

    def _of_teacher(self) -> tuple[bool, bool]:
        """Whether a teacher's likeliest tokens are compared, and whether nothing but the teacher is learned from."""
        if not is_distillation_enabled(self.config.get("distillation")):
            return False, False
        loss = self.distillation_config.distillation_loss
        likeliest = bool(loss.loss_settings.use_topk)
        return likeliest, likeliest and not (loss.use_task_rewards or loss.use_policy_gradient)


@register_trainer(TRAINERS[Mode.sync])
class EpisodeTrainer(EpisodeUpdates, PPOTrainerSync):  # type: ignore[misc]
    mode = Mode.sync


def _by_verl(algorithm: Any, episodes: int, data: DataProto) -> DataProto:
    return compute_advantage(
        data,
        adv_estimator=algorithm.adv_estimator,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        num_repeat=episodes,
        norm_adv_by_std_in_grpo=algorithm.get("norm_adv_by_std_in_grpo", True),
        config=algorithm,
    )


def _taught(
    data: DataProto, teacher: Sequence[torch.Tensor], lengths: Sequence[int], reward_coef: float
) -> dict[str, float]:
    """Add the teacher's advantages to the rewards'; returns the KL divergence to it, in nats a trained token."""
    taught = by_teacher(teacher, data.batch["old_log_probs"], lengths)
    data.batch["advantages"] = reward_coef * data.batch["advantages"] + taught
    trained = taught[data.batch["response_mask"].bool()].double()
    return {"training/teacher_kl": -float(trained.mean()) if len(trained) else 0.0}


def _compared(data: DataProto, samples: list[Sample], estimator: str) -> dict[str, int]:
    """How many groups have several samples to compare, and in how many of them all rewards are equal.

    Raises RuntimeError where rewards differ within a group and give no advantages: the step would train nothing.
    """
    mask, advantages = data.batch["response_mask"].bool(), data.batch["advantages"]
    scores = data.batch["token_level_rewards"].sum(dim=-1)
    groups: dict[str, list[float]] = {}
    for sample in samples:
        rows = list(sample.rows)
        if mask[rows].any():
            groups.setdefault(sample.group, []).append(float(scores[rows].sum()))
    compared = [rewards for rewards in groups.values() if len(rewards) > 1]
    differ = sum(max(rewards) - min(rewards) > 1e-6 for rewards in compared)
    if differ and estimator in _COMPARED and not torch.any(advantages[mask]):
        raise RuntimeError(
            f"All advantages of the step are 0, although rewards differ in {differ} groups: an error of "
            f"aworld-train's, with algorithm.name={estimator}."
        )
    return {"training/groups": len(compared), "training/equal_groups": len(compared) - differ}
