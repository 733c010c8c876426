"""VeRL's trainer as a run has it: what a batch is filled up with, what workers are told, and what is written back."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue import KVBatchMeta
from verl.utils.dataset.rl_dataset import collate_fn

from aworld_train.adapter.verl import checkpoints, trainer
from aworld_train.adapter.verl.async_trainers import SeparateTrainer
from aworld_train.adapter.verl.attention import TRIE
from aworld_train.adapter.verl.trainer import EpisodeTrainer
from tests.unit.adapter.verl.test_checkpoints import checkpoint as saved_checkpoint

RATIO = 1.25
"""Of every token: the trainer's probability over the engine's."""
KEYS = ["a_0_0", "a_0_1", "a_1_0", "b_0_0", "b_1_0", "b_1_1"]
REWARDS = [1.0, 1.0, 0.0, 0.5, 0.0, 0.0]
MASKS = [[1, 1], [1, 0, 1, 1], [1], [1, 1], [1], [0, 1]]
CONFIG = {
    "algorithm": {
        "adv_estimator": "rloo",
        "gamma": 1.0,
        "lam": 1.0,
        "use_kl_in_reward": False,
        "norm_adv_by_std_in_grpo": True,
        "rollout_correction": None,
    },
    "data": {"train_batch_size": 2},
    "trainer": {"v1": {"sampler": {"sampler_kwargs": {}}}},
    "actor_rollout_ref": {
        "model": {"override_config": {}},
        "rollout": {"n": 2, "temperature": 0.5},
        "actor": {
            "ppo_mini_batch_size": 1,
            "ppo_micro_batch_size_per_gpu": 2,
            "ppo_epochs": 3,
            "use_dynamic_bsz": False,
            "loss_agg_mode": "token-mean",
            "data_loader_seed": 7,
            "calculate_entropy": False,
            "entropy_coeff": 0.0,
            "use_kl_loss": False,
            "optim": {"clip_grad": 1.0},
        },
    },
    "critic": {
        "ppo_epochs": 1,
        "data_loader_seed": 8,
        "use_dynamic_bsz": False,
        "ppo_micro_batch_size_per_gpu": 3,
    },
}


def made(**changes: Any) -> Any:
    """A trainer without Ray: its configuration, and a group of two ranks that keeps what it was told."""
    trained: Any = EpisodeTrainer.__new__(EpisodeTrainer)
    trained.config = OmegaConf.merge(CONFIG, changes)
    trained.use_critic, trained.parameter_sync_step = False, 1
    trained.global_steps, trained._counts, trained._curriculum = 4, Counter(), None
    trained.tokenizer = SimpleNamespace(eos_token_id=0)

    def update_actor(batch: Any) -> dict[str, Any]:
        trained.received = dict(batch.extra_info)
        return {"metrics": {"loss": [1.0, 3.0], "grad_norm": [0.5, 1.0, 1.5, 2.5], "mfu": 0.5}}

    trained.actor_rollout_wg = SimpleNamespace(
        _dispatch_info={}, _query_dispatch_info=lambda role: [0, 1], update_actor=update_actor
    )
    return trained


def batch_of(keys: list[str] = KEYS) -> KVBatchMeta:
    return KVBatchMeta(keys=keys, tags=[{"seq_len": 5} for _ in keys], partition_id="train")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """VeRL's queue with the columns of the rows above; what is written into it."""
    written: dict[str, Any] = {}

    def read(*, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        places = [KEYS.index(key) for key in keys]
        masks = [torch.tensor(MASKS[place]) for place in places]
        scores = [torch.zeros(len(mask)) for mask in masks]
        for place, score in zip(places, scores, strict=True):
            score[-1] = REWARDS[place]
        facts = [{"agent": "main", "reward_extra_info": {"score": REWARDS[place]}} for place in places]
        engine = [torch.zeros(len(mask)) for mask in masks]
        trainer = [math.log(RATIO) * torch.ones(len(mask)) for mask in masks]
        nested = {"response_mask": masks, "rm_scores": scores, "rollout_log_probs": engine}
        return TensorDict(
            {
                **{
                    name: torch.nested.as_nested_tensor(rows, layout=torch.jagged)
                    for name, rows in (nested | {"old_log_probs": trainer}).items()
                },
                "uid": NonTensorStack(*[key.split("_")[0] for key in keys]),
                "extra_fields": NonTensorStack(*facts),
            },
            batch_size=len(keys),
        )

    def write(*, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        written.update(keys=keys, fields=fields)
        return batch_of(keys)

    def fill_up(batch: KVBatchMeta, multiple: int, token: int) -> KVBatchMeta:
        missing = -len(batch) % multiple
        return KVBatchMeta(
            keys=[*batch.keys, *(f"pad_{number}_0" for number in range(missing))],
            tags=[*batch.tags, *({"is_padding": True, "seq_len": 1} for _ in range(missing))],
            partition_id="train",
        )

    monkeypatch.setattr(trainer.queue, "kv_batch_get", read)
    monkeypatch.setattr(trainer.queue, "kv_batch_put", write)
    monkeypatch.setattr(trainer, "upsample_batch_to_divisible_size", fill_up)
    return written


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 8),
        ({"actor_rollout_ref": {"actor": {"use_dynamic_bsz": True}}}, 8),
        ({"actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 2}}}, 8),
        ({"actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 2, "use_dynamic_bsz": True}}}, 6),
    ],
)
def test_a_batch_is_filled_up_to_equal_updates_of_equal_ranks(
    written: dict[str, Any], changes: dict[str, Any], rows: int
) -> None:
    metrics: dict[str, Any] = {}
    trained = made(**changes)
    batch = trained._balance_batch(batch_of(), metrics)
    updates = 2 // trained.config.actor_rollout_ref.actor.ppo_mini_batch_size
    assert len(batch) == rows and set(KEYS) <= set(batch.keys)
    assert metrics == {
        "training/rows": 6,
        "training/episodes": 4,
        "training/updates": updates * 3,
        "training/padding_rows": rows - 6,
    }
    trained._update_actor(batch, metrics)
    assert trained.received["num_mini_batch"] == updates
    assert trained.received["global_batch_size"] == 4 / updates
    assert "mini_batch_size" not in trained.received, "it counts rows"
    assert (trained.received["epochs"], trained.received["seed"], trained.received["temperature"]) == (
        3,
        7,
        0.5,
    )
    assert trained.received["dataloader_kwargs"] == {"shuffle": False}
    assert (metrics["actor/loss"], metrics["actor/grad_norm"], metrics["perf/mfu/actor"]) == (2.0, 1.375, 0.5)
    assert metrics["training/clipped_updates"] == 2


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "opo", "grpo_passk", "reinforce_plus_plus_baseline"])
@pytest.mark.parametrize("keys", [["a_0_0", "a_0_1", "a_1_0", "b_0_0"], ["a_0_0", "a_0_1", "b_0_0"]])
def test_an_episode_that_is_alone_in_its_group_is_compared_with_nothing(
    written: dict[str, Any], estimator: str, keys: list[str]
) -> None:
    made(algorithm={"adv_estimator": estimator})._compute_advantage(batch_of(keys), {})
    found = dict(zip(keys, written["fields"]["advantages"].unbind(), strict=True))
    assert not found["b_0_0"].any(), "VeRL's is the reward itself"
    assert bool(found["a_0_0"].any()) is ("a_1_0" in keys)


def test_a_critic_s_passes_count_too(written: dict[str, Any]) -> None:
    trained = made()
    trained.use_critic = True
    assert len(trained._balance_batch(batch_of(), {})) == 2 * 12


def test_where_prefixes_are_shared_a_task_has_one_rank_and_tokens_of_all_updates_are_counted(
    written: dict[str, Any],
) -> None:
    metrics: dict[str, Any] = {}
    model = {"override_config": {"attn_implementation": TRIE}}
    trained = made(
        actor_rollout_ref={"model": model, "actor": {"ppo_mini_batch_size": 2, "use_dynamic_bsz": True}}
    )
    mixed = ["b_0_0", "a_0_0", "b_1_0", "a_0_1", "a_1_0", "b_1_1"]
    batch = trained._balance_batch(batch_of(mixed), metrics)
    assert [{key[0] for key in batch.keys[rank * 3 : rank * 3 + 3]} for rank in range(2)] == [{"b"}, {"a"}]
    answer = trained.actor_rollout_wg.update_actor(batch)
    # Of each update the mean over both ranks.
    answer["metrics"] |= {"forwarded_tokens": [10.5, 20.0], "saved_tokens": [3.0, 4.0]}
    trained.actor_rollout_wg.update_actor = lambda batch: answer
    trained._update_actor(batch, metrics)
    assert (metrics["training/forwarded_tokens"], metrics["training/saved_tokens"]) == (61, 14)


def test_advantages_are_of_episodes_and_written_for_every_row(written: dict[str, Any]) -> None:
    metrics: dict[str, Any] = {}
    batch = made()._compute_advantage(batch_of(), metrics)
    assert batch.keys == KEYS
    found = [row.tolist() for row in written["fields"]["advantages"].unbind()]
    each = [1.0, 1.0, -1.0, 0.5, -0.5, -0.5]
    assert found == [[value * bit for bit in mask] for value, mask in zip(each, MASKS, strict=True)]
    assert set(written["fields"].keys()) == {"advantages", "returns"}
    assert metrics == {"training/groups": 2, "training/equal_groups": 0}


@pytest.mark.parametrize("reward_coef", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_a_teacher_s_advantages_are_added_to_those_of_the_rewards_for_every_row(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch, reward_coef: float, aggregation: str
) -> None:
    """Every token is less likely to the teacher by a nat, but for those of the last row: these by two more."""
    read = trainer.queue.kv_batch_get

    def with_teacher(**what: Any) -> TensorDict:
        columns: TensorDict = read(**what)
        rows = [torch.full((3 + len(mask), 1), math.log(RATIO) - 1) for mask in MASKS]
        rows[-1] -= 2
        for row in rows:
            row[-1] = 0.0
        columns["teacher_logprobs"] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        return columns

    monkeypatch.setattr(trainer.queue, "kv_batch_get", with_teacher)
    changes = {
        "trainer": {"v1": {"sampler": {"sampler_kwargs": {"reward_coef": reward_coef}}}},
        "actor_rollout_ref": {"actor": {"loss_agg_mode": aggregation}},
    }
    metrics: dict[str, Any] = {}
    made(**changes)._compute_advantage(batch_of(), metrics)
    shares = [0.4, 0.6, 1.0, 1.0, 0.5, 0.5] if aggregation == "seq-mean-token-mean" else [1.0] * 6
    rewards, teacher = [1.0, 1.0, -1.0, 0.5, -0.5, -0.5], [-1.0] * 5 + [-3.0]
    for row, mask, reward, taught, share in zip(
        written["fields"]["advantages"].unbind(), MASKS, rewards, teacher, shares, strict=True
    ):
        trained = row[torch.tensor(mask).bool()].tolist()
        assert trained == pytest.approx([share * (reward_coef * reward + taught)] * sum(mask), abs=1e-6)
    assert metrics["training/teacher_kl"] == pytest.approx((9 + 3) / 10, abs=1e-6)


def test_a_group_of_equal_rewards_is_counted(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "REWARDS", [1.0, 1.0, 1.0, 0.5, 0.0, 0.0])
    metrics: dict[str, Any] = {}
    made()._compute_advantage(batch_of(), metrics)
    assert metrics == {"training/groups": 2, "training/equal_groups": 1}


def test_all_rows_of_an_episode_have_its_one_weight(written: dict[str, Any]) -> None:
    """An episode of two rows has five trained tokens, the others one, two and two."""
    correction = {"rollout_is": "sequence", "rollout_is_threshold": 10.0}
    metrics: dict[str, Any] = {}
    made(algorithm={"rollout_correction": correction})._compute_advantage(batch_of(), metrics)
    each = [RATIO**power for power in (5, 5, 1, 2, 2, 2)]
    weights = [row.tolist() for row in written["fields"]["rollout_is_weights"].unbind()]
    for weight, mask, row in zip(each, MASKS, weights, strict=True):
        assert row == pytest.approx([weight * bit for bit in mask])
    assert metrics["training/rejected_episodes"] == metrics["training/rejected_tokens"] == 0


def test_what_a_correction_rejects_is_not_trained_and_is_counted(written: dict[str, Any]) -> None:
    """The longest episode's ratio alone is above the threshold: that of none of its rows is."""
    correction = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": f"{RATIO**-4}_{RATIO}"}
    metrics: dict[str, Any] = {}
    made(algorithm={"rollout_correction": correction})._compute_advantage(batch_of(), metrics)
    kept = [row.tolist() for row in written["fields"]["response_mask"].unbind()]
    assert kept == [[0, 0], [0, 0, 0, 0], *MASKS[2:]]
    assert (metrics["training/rejected_episodes"], metrics["training/rejected_tokens"]) == (1, 5)
    assert metrics["training/groups"] == 1, "of one group only one sample is left"


def test_a_mean_of_means_is_one_of_episodes(written: dict[str, Any]) -> None:
    made(actor_rollout_ref={"actor": {"loss_agg_mode": "seq-mean-token-mean"}})._compute_advantage(
        batch_of(), {}
    )
    found = [row.tolist() for row in written["fields"]["advantages"].unbind()]
    assert found[0] == pytest.approx([0.4, 0.4]) and found[1] == pytest.approx([0.6, 0, 0.6, 0.6])
    assert found[2:4] == [[-1.0], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("changes", "term"),
    [({"use_kl_loss": True}, "kl_coef"), ({"entropy_coeff": 0.1}, "entropy_coef"), ({}, "critic")],
)
def test_a_mean_of_means_has_no_terms_of_rows(
    written: dict[str, Any], changes: dict[str, Any], term: str
) -> None:
    trained = made(actor_rollout_ref={"actor": {"loss_agg_mode": "seq-mean-token-mean", **changes}})
    trained.use_critic = not changes
    with pytest.raises(RuntimeError, match=f"{term}.* by rows"):
        trained._compute_advantage(batch_of(), {})
    trained._refuse_terms_of_rows([[0], [1]])


def test_rewards_that_differ_and_advantages_that_are_all_zero_end_the_run(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(data: Any, **_: Any) -> Any:
        data.batch["advantages"] = torch.zeros(data.batch["token_level_rewards"].shape)
        data.batch["returns"] = data.batch["advantages"]
        return data

    monkeypatch.setattr(trainer, "compute_advantage", nothing)
    with pytest.raises(RuntimeError, match="rewards differ in 2 groups"):
        made()._compute_advantage(batch_of(), {})
    # Another estimator may find nothing in them: of two equally good episodes none is the best.
    made(algorithm={"adv_estimator": "grpo_passk"})._compute_advantage(batch_of(), {})


def test_the_counts_of_a_step_are_those_of_all_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(self: Any, metrics: Any, timing: Any, size: int) -> str:
        metrics |= {"training/episodes": 4 + size, "training/stale_tokens": 3, "actor/lr": 1.0}
        return "batch"

    def step(self: Any, metrics: Any, timing: Any) -> str:
        for size in range(2):
            batch = self._step_once({}, timing, size)
        metrics |= {"training/episodes": 4.5, "actor/lr": 1.0}
        return batch

    monkeypatch.setattr(trainer.PPOTrainer, "_step_once", once)
    monkeypatch.setattr(trainer.PPOTrainer, "step", step)
    metrics: dict[str, Any] = {}
    assert made().step(metrics, {}) == "batch"
    assert metrics == {"training/episodes": 9, "training/stale_tokens": 6, "actor/lr": 1.0}


@pytest.mark.parametrize(
    ("kind", "expected"), [(EpisodeTrainer, ("sync", 1)), (SeparateTrainer, ("separate_async", 2))]
)
def test_where_verl_asks_for_the_mode_it_is_its_own(
    kind: Any, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        trainer.PPOTrainer, "_build_replay_buffer", lambda self: (self.trainer_mode, self.parameter_sync_step)
    )
    trained = kind.__new__(kind)
    trained.config = OmegaConf.create(
        {"trainer": {"v1": {"sync": {}, "separate_async": {"parameter_sync_step": 2}}}}
    )
    assert trained._build_replay_buffer() == expected


def test_a_resumed_run_forgets_trained_rows_and_says_which_tasks_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a task a row was of the step that the checkpoint ended; ``c`` is finished and still to be trained."""
    groups = {"a": "pending", "b": "running", "c": "finished", "d": "failure"}
    tags = {uid: {"is_prompt": True, "status": status} for uid, status in groups.items()}
    rows = ["b_0_0", "c_0_0", "e_0_0", "e_1_0"]
    removed: list[str] = []
    reported: list[list[str]] = []
    monkeypatch.setattr(
        trainer.queue, "kv_list", lambda partition: {partition: tags | {key: {} for key in rows}}
    )
    monkeypatch.setattr(trainer.queue, "kv_clear", lambda *, keys, partition_id: removed.extend(keys))
    monkeypatch.setattr(trainer, "report_replayed", reported.append)
    monkeypatch.setattr(trainer.PPOTrainer, "_reissue_inflight_prompts", lambda self, partition: 2)
    assert made()._reissue_inflight_prompts() == 2
    assert removed == ["e_0_0", "e_1_0"]
    assert reported == [["a", "b"]]
    monkeypatch.setattr(trainer.queue, "kv_list", lambda partition: None)
    made()._reissue_inflight_prompts()
    assert len(removed) == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("number", "whole"), [(4, [2, 3]), (3, [2])], ids=["a new one", "the same again"])
@pytest.mark.parametrize("killed_in", ["save", "complete", "state"])
def test_a_checkpoint_is_whole_when_its_model_is_complete_and_older_ones_go_after_that(
    killed_in: str, number: int, whole: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained = made(
        trainer={"default_local_dir": str(tmp_path), "max_actor_ckpt_to_keep": 2},
        actor_rollout_ref={"model": {"path": "models/a"}},
    )
    called: list[Any] = []
    kill: list[str] = []

    def call(name: str, *facts: Any) -> dict[str, int]:
        called.append((name, *facts))
        if name in kill:
            raise Killed
        return {}

    def save(folder: str, hub: None, step: int, max_ckpt_to_keep: None) -> None:
        place = Path(folder).with_name("data.pt")
        was_there = place.exists()
        saved_checkpoint(tmp_path, step)
        if not was_there:  # VeRL's workers write none
            place.unlink()
        call("save")

    trained.actor_rollout_wg = SimpleNamespace(save_checkpoint=save)
    trained.train_dataloader = SimpleNamespace(state_dict=lambda: call("state"))
    trained.checkpoint_callback = SimpleNamespace(
        on_save=lambda **facts: call("callback", facts["checkpoint_dir"])
    )
    monkeypatch.setattr(
        checkpoints, "complete", lambda model, settings: call("complete", model, settings.path)
    )
    for step in (1, 2, 3):
        trained.global_steps = step
        trained._save_checkpoint()
    folder = tmp_path / "global_step_3"
    assert called[-4:] == [
        ("save",),
        ("complete", folder / "actor/huggingface", "models/a"),
        ("state",),
        ("callback", str(folder)),
    ]
    kill.append(killed_in)
    trained.global_steps = number
    with pytest.raises(Killed):
        trained._save_checkpoint()
    assert [each.step for each in checkpoints.stored(tmp_path) if not each.fault] == whole


def test_the_bounds_of_a_token_close_with_the_age_of_its_weights(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = trainer.queue.kv_batch_get

    def with_versions(**arguments: Any) -> Any:
        columns = read(**arguments)
        parts: list[Any] = [[], [(0, 3), (2, 1)], [(0, 9)], [(1, 2)], None, [(0, 0)]]
        facts = [
            {**fact, "version_parts": own} for fact, own in zip(columns["extra_fields"], parts, strict=True)
        ]
        columns["extra_fields"] = NonTensorStack(*facts)
        return columns

    monkeypatch.setattr(trainer.queue, "kv_batch_get", with_versions)
    trained = made(trainer={"v1": {"sampler": {"sampler_kwargs": {"age_decay": 0.5}}}})
    trained._compute_advantage(batch_of(), {})  # of step 4, which trains version 3
    widths = [row.tolist() for row in written["fields"]["rollout_is_weights"].unbind()]
    ages = [[0, 0], [0, 0, 2, 2], [0], [0, 1], [0], [3, 3]]
    assert widths == [pytest.approx([math.exp(-0.5 * age) for age in row]) for row in ages]


def test_the_curriculum_hears_which_task_has_which_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any) -> None:
        self.train_dataset = [{"raw_prompt": f"task {number}"} for number in range(4)]
        self.train_dataloader = StatefulDataLoader(
            self.train_dataset, batch_size=2, collate_fn=collate_fn, drop_last=True
        )
        self.train_dataloader_it = None

    monkeypatch.setattr(trainer.PPOTrainer, "_init_dataloader", load)
    monkeypatch.setattr(trainer.PPOTrainer, "_step_once", lambda self, metrics, *rest: "batch")
    sampler = {"sampler_kwargs": {"curriculum": True}}
    trained = made(trainer={"v1": {"sampler": sampler}}, data={"seed": 1, "shuffle": False})
    trained._init_dataloader()
    batches = [trained._fetch_one_gen_batch() for _ in range(2)]
    uids = [uid for batch in batches for uid in batch["uid"]]
    assert [task for batch in batches for task in batch["raw_prompt"]] == [f"task {n}" for n in range(4)]
    trained.replay_buffer = SimpleNamespace(rewards={uids[1]: [1.0] * 8, uids[2]: []})
    trained._step_once({}, {}, 2)
    assert [trained._curriculum.weight(task) for task in range(4)] == pytest.approx([1, 0.36, 1, 1])
    state = trained.train_dataloader.state_dict()["_sampler_iter_state"]["sampler_state"]
    assert state["under_way"] == {uids[0]: 0, uids[3]: 3}
    assert trained.replay_buffer.rewards == {}
