"""A recipe becomes one resolved VeRL configuration that says the same thing, and nothing that VeRL does not know."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from aworld_train import recipe as recipes
from aworld_train.adapter.base import MAX_SAMPLERS, framework_of
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.attention import VARLEN_MODULE
from aworld_train.adapter.verl.command import verl_environment
from aworld_train.adapter.verl.compose import (
    LOGPROBS_MODULE,
    MINIRL_MODULE,
    VISION_BATCHES_MODULE,
    agent_file,
    compose,
    forks,
    joins_cluster,
    own_keys,
)
from aworld_train.adapter.verl.cpu import REGISTRATION_MODULE
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.errors import RecipeError

BASE = {"model": {"path": "org/model"}, "dataset": {"train": "t.parquet", "val": "v.parquet"}}

GPU_PATHS = ["model.path=org/model", "dataset.train=t.parquet"]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PARAMS, OPTIMIZER = f"{ACTOR}.fsdp_config.param_offload", f"{ACTOR}.fsdp_config.optimizer_offload"


def composed(tmp_path: Path, *overrides: str, **options: Any) -> dict[str, Any]:
    return compose(recipes.load(BASE, overrides), tmp_path, **options)


def leaf(config: dict[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_the_whole_configuration_is_resolved_and_known_to_verl(tmp_path: Path, engine: str) -> None:
    config = composed(tmp_path, f"rollout.engine={engine}")
    assert "${" not in str(config)
    assert "???" not in str(config)
    schema.check(config, config)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("trainer.steps=7", "trainer.total_training_steps", 7),
        ("trainer.lr=3e-5", "actor_rollout_ref.actor.optim.lr", 3e-5),
        ("trainer.batch_size=32", "actor_rollout_ref.actor.ppo_mini_batch_size", 32),
        ("trainer.seed=9", "actor_rollout_ref.rollout.seed", 9),
        ("rollout.temperature=0.7", "actor_rollout_ref.rollout.temperature", 0.7),
        ("rollout.top_k=5", "actor_rollout_ref.rollout.top_k", 5),
        ("rollout.max_response_tokens=99", "data.max_response_length", 99),
        ("rollout.max_response_tokens=99", "actor_rollout_ref.rollout.response_length", 99),
        ("algorithm.kl_coef=0.01", "actor_rollout_ref.actor.use_kl_loss", True),
        ("algorithm.clip_high=0.3", "actor_rollout_ref.actor.clip_ratio_high", 0.3),
        ("cluster.gpus_per_node=2", "trainer.n_gpus_per_node", 2),
        ("cluster.gpus_per_node=2", "ray_kwargs.ray_init.num_gpus", 2),
        ("dataset.val_limit=5", "data.val_max_samples", 5),
        ("trainer.val_every=0", "trainer.test_freq", 10**9),
        ("trainer.val_ends=false", "trainer.val_before_train", False),
        ("trainer.save_every=0", "trainer.save_freq", 0),
        ("trainer.loggers=[tensorboard]", "trainer.logger", ["console", "file", "tensorboard"]),
        ("verl.actor_rollout_ref.actor.ppo_epochs=3", "actor_rollout_ref.actor.ppo_epochs", 3),
    ],
)
def test_what_the_recipe_says_is_what_verl_is_told(
    tmp_path: Path, override: str, key: str, value: object
) -> None:
    assert leaf(composed(tmp_path, override), key) == value


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["trainer.mode=separate_async", "rollout.samplers=2", "trainer.async.correction=sequence_is"],
            {
                "trainer.v1.trainer_mode": "episodes_separate_async",
                "trainer.v1.separate_async.num_warmup_batches": 1,
                "trainer.v1.separate_async.parameter_sync_step": 1,
                "actor_rollout_ref.hybrid_engine": False,
                f"{ROLLOUT}.n_gpus_per_node": 2,
                f"{ROLLOUT}.checkpoint_engine.backend": "objects",
                "ray_kwargs.ray_init.num_gpus": 1 + MAX_SAMPLERS,
                "algorithm.rollout_correction.rollout_is": "sequence",
            },
        ),
        (
            [
                "trainer.mode=colocate_async",
                "trainer.async.staleness=3",
                "trainer.async.warmup_batches=2",
                "trainer.async.partial_rollouts=false",
                "trainer.async.correction_cap=4",
            ],
            {
                "trainer.v1.trainer_mode": "episodes_colocate_async",
                "trainer.v1.colocate_async.num_warmup_batches": 2,
                "trainer.v1.sampler.custom_sampler.name": "AsyncGroupSampler",
                "trainer.v1.sampler.sampler_kwargs": {
                    "min_group": 2,
                    "equal_group": "keep",
                    "max_resamples": 3,
                    "curriculum": False,
                    "age_decay": 0.0,
                    "max_staleness": 3,
                    "partial_rollouts": False,
                    "recovery_timeout": 120.0,
                },
                "actor_rollout_ref.hybrid_engine": True,
                "ray_kwargs.ray_init.num_gpus": 1,
                "algorithm.rollout_correction.rollout_is": "token",
                "algorithm.rollout_correction.rollout_is_threshold": 4.0,
            },
        ),
    ],
)
def test_asynchronous_modes_are_verl_s(
    tmp_path: Path, overrides: list[str], expected: dict[str, Any]
) -> None:
    config = composed(tmp_path, *overrides)
    assert {key: leaf(config, key) for key in expected} == expected


def test_a_run_need_not_validate_at_all(tmp_path: Path) -> None:
    config = composed(tmp_path, "trainer.val_every=0", "trainer.val_ends=false")
    assert (leaf(config, "trainer.test_freq"), leaf(config, "trainer.val_before_train")) == (0, False)


def test_without_a_gpu_everything_is_float32_and_the_cpu_engine_is_loaded(tmp_path: Path) -> None:
    config = composed(tmp_path)
    assert leaf(config, "trainer.device") == "cpu"
    assert leaf(config, "actor_rollout_ref.model.external_lib") == [REGISTRATION_MODULE]
    assert leaf(config, "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype") == "fp32"
    with_gpu = composed(tmp_path, "rollout.engine=vllm")
    assert leaf(with_gpu, "trainer.device") == "cuda"
    assert leaf(with_gpu, "actor_rollout_ref.model.external_lib") == [LOGPROBS_MODULE, VARLEN_MODULE]


def test_batches_of_a_model_that_sees_images_are_repaired(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {}, "text_config": {}}))
    for more in ([], ["rollout.engine=vllm"]):
        config = composed(tmp_path, f"model.path={tmp_path}", *more)
        assert leaf(config, "actor_rollout_ref.model.external_lib")[-1] == VISION_BATCHES_MODULE


def test_a_resumed_run_does_not_measure_again(tmp_path: Path) -> None:
    plan = VerlFramework().compile(recipes.load(BASE), tmp_path)
    assert list(plan.without_first_validation) == ["trainer.val_before_train=False"]


def test_a_key_that_verl_does_not_know_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="ppo_epochs"):
        composed(tmp_path, "verl.actor_rollout_ref.actor.ppo_epoch=3")


def test_a_secret_is_not_written_into_the_run_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hush")
    with pytest.raises(RecipeError, match="environment variable"):
        framework_of(
            recipes.load(BASE, ["verl.ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY=${oc.env:KEY}"])
        )


def test_tasks_that_may_replace_others_are_played_one_by_one(tmp_path: Path) -> None:
    assert leaf(composed(tmp_path), "data.gen_batch_size") is None
    assert leaf(composed(tmp_path, "algorithm.preset=dapo"), "data.gen_batch_size") == 1


def test_minirl_is_registered_and_gets_the_probabilities_of_sampling(tmp_path: Path) -> None:
    config = composed(tmp_path, "algorithm.preset=minirl", "algorithm.age_decay=0.5")
    assert leaf(config, "actor_rollout_ref.actor.policy_loss.loss_mode") == "minirl"
    assert MINIRL_MODULE in leaf(config, "actor_rollout_ref.model.external_lib")
    assert leaf(config, "algorithm.rollout_correction.bypass_mode") is True
    assert leaf(config, "trainer.v1.sampler.sampler_kwargs.age_decay") == 0.5


def test_the_agent_file_holds_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SERVER_TOKEN", "hush")
    (entry,) = agent_file(recipes.load({"agent": {"max_turns": 3, "system_prompt": "Be brief."}}), tmp_path)
    assert entry == {
        "name": recipes.load({}).agent.name,
        "_target_": "aworld_train.adapter.verl.agent_loop.EpisodeLoop",
        "settings": str(tmp_path / "episodes.yaml"),
    }
    assert "hush" not in str(entry)


def test_the_private_ray_keeps_its_token_to_itself(tmp_path: Path) -> None:
    private = PrivateFolder(tmp_path / "private")
    private.fill()
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    token = Path(variables["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64
    assert token.read_text() not in str(variables)
    assert variables["VERL_PLATFORM"] == "cpu"


@pytest.mark.parametrize("change", ["runtime_env=null", "runtime_env.worker_process_setup_hook=mine:hook"])
def test_what_secures_a_runs_ports_cannot_be_left_out(tmp_path: Path, change: str) -> None:
    with pytest.raises(RecipeError, match=r"verl\.ray_kwargs\.ray_init\.runtime_env.* cannot be set"):
        framework_of(recipes.load(BASE, [f"verl.ray_kwargs.ray_init.{change}"]))


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("trainer.minibatch_size=8", {f"{ACTOR}.ppo_mini_batch_size": 8}),
        ("dataset.train=[a.parquet, b.parquet]", {"data.train_files": ["a.parquet", "b.parquet"]}),
        ("trainer.offload=params", {PARAMS: True, OPTIMIZER: False}),
        ("trainer.offload=optimizer", {PARAMS: False, OPTIMIZER: True}),
        ("trainer.offload=all", {PARAMS: True, OPTIMIZER: True}),
        (
            "algorithm.loss_aggregation=seq-mean-token-sum-norm",
            {f"{ACTOR}.loss_scale_factor": recipes.load("base/gpu-1", GPU_PATHS).rollout.max_response_tokens},
        ),
        ("algorithm.kl_coef=0", {f"{ACTOR}.use_kl_loss": False}),
        ("algorithm.kl_reward_coef=0", {"algorithm.use_kl_in_reward": False}),
        ("algorithm.kl_reward_coef=0.1", {"algorithm.use_kl_in_reward": True}),
        ("algorithm.rollout_correction=off", {"algorithm.rollout_correction.rollout_is": None}),
        ("algorithm.rollout_correction=token", {"algorithm.rollout_correction.rollout_is": "token"}),
        ("rollout.val_temperature=0", {f"{ROLLOUT}.val_kwargs.do_sample": False}),
        ("rollout.val_temperature=0.5", {f"{ROLLOUT}.val_kwargs.do_sample": True}),
        ("trainer.epochs=2", {"trainer.total_training_steps": None, "trainer.total_epochs": 2}),
        ("trainer.steps=7", {"trainer.total_training_steps": 7, "trainer.total_epochs": 7}),
        (
            "trainer.max_batch_tokens=5000",
            {
                f"{ACTOR}.ppo_max_token_len_per_gpu": 5000,
                "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 10_000,
            },
        ),
    ],
)
def test_what_follows_from_the_recipe_is_set_with_it(
    tmp_path: Path, override: str, keys: dict[str, Any]
) -> None:
    own = own_keys(recipes.load("base/gpu-1", [*GPU_PATHS, override]), tmp_path)
    assert {key: own[key] for key in keys} == keys


def test_ray_has_the_recipe_s_environment_and_processors_for_all_of_verl_s_actors(tmp_path: Path) -> None:
    for gpus, processors in ((8, 32), (9, 35)):
        sizes = [f"cluster.gpus_per_node={gpus}", "trainer.batch_size=72", "rollout.n=8"]
        recipe = recipes.load("base/gpu-1", [*GPU_PATHS, *sizes, "cluster.environment={MODE: fast}"])
        init = own_keys(recipe, tmp_path)["ray_kwargs.ray_init"]
        assert (init["num_cpus"], init["address"], init["include_dashboard"]) == (processors, "local", False)
        assert init["runtime_env"]["env_vars"] == {"MODE": "fast"}
        assert init["log_to_driver"] is True
        assert "num_gpus" not in init, "Ray finds them"


@pytest.mark.parametrize(
    ("launcher", "device", "joins", "are_forks"),
    [
        ("local", "cpu", False, True),
        ("local", "cuda", False, False),
        ("ray", "cpu", True, False),
        ("kubernetes", "cpu", True, False),
        ("slurm", "cpu", False, True),
    ],
)
def test_processes_are_forks_where_the_ray_is_the_run_s_own_and_there_is_no_gpu(
    launcher: str, device: str, joins: bool, are_forks: bool
) -> None:
    engine = "vllm" if device == "cuda" else "transformers"
    cluster = {"launcher": launcher, "device": device, "nodes": 1 if launcher == "local" else 2}
    recipe = recipes.load({"cluster": cluster, "rollout": {"engine": engine}})
    assert (joins_cluster(recipe), forks(recipe)) == (joins, are_forks)


TAUGHT = ("trainer.method=distill", "distill.teacher=org/teacher")


@pytest.mark.parametrize(("mode", "gpus"), [("sync", 2), ("separate_async", 2 + MAX_SAMPLERS)])
def test_a_teacher_has_an_engine_and_a_gpu_of_its_own(tmp_path: Path, mode: str, gpus: int) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    config = composed(tmp_path, *TAUGHT, f"trainer.mode={mode}", "distill.reward_coef=0.5")
    schema.check(config, config)
    assert config["ray_kwargs"]["ray_init"]["num_gpus"] == gpus
    assert (
        config["trainer"]["v1"]["sampler"]["sampler_kwargs"].items()
        >= {"reward_coef": 0.5, "min_group": 2}.items()
    )
    parsed = omega_conf_to_dataclass(OmegaConf.create(config["distillation"]))
    teacher = parsed.teacher_models["default"]
    assert (teacher.model_path, teacher.num_replicas, teacher.inference.name) == (
        "org/teacher",
        1,
        "transformers",
    )
    # A whole episode is its prompt.
    assert teacher.inference.prompt_length == recipes.load(BASE).max_episode_tokens


def test_a_teacher_alone_trains_on_groups_of_one(tmp_path: Path) -> None:
    config = composed(tmp_path, *TAUGHT)
    settings = config["trainer"]["v1"]["sampler"]["sampler_kwargs"]
    assert (settings["reward_coef"], settings["min_group"]) == (0.0, 1)
    assert not composed(tmp_path)["distillation"]["enabled"]


def test_verl_s_own_term_of_the_loss_is_nothing_with_a_teacher(tmp_path: Path) -> None:
    """The teacher is in the advantages: loss and gradient are those of VeRL's policy loss."""
    import torch
    from tensordict import TensorDict
    from verl.trainer.distillation import distillation_ppo_loss
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    config = OmegaConf.create(composed(tmp_path, *TAUGHT))
    actor, distillation = (
        omega_conf_to_dataclass(part) for part in (config.actor_rollout_ref.actor, config.distillation)
    )

    def jagged(*rows: list[float]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    sampled = torch.tensor(
        [[-1.0, -0.5, -2.0, -1.5, -0.1], [-0.7, -0.2, -0.3, -3.0, 0.0]], requires_grad=True
    )
    lengths = (5, 4)
    batch = TensorDict(
        {
            "prompts": jagged([1, 2], [1]),
            "responses": jagged([1, 2, 3], [1, 2, 3]),
            "attention_mask": jagged([1] * 5, [1] * 4),
            "response_mask": jagged([1, 1, 0], [1, 1, 1]),
            "old_log_probs": jagged([-0.5, -2.0, -1.5], [-0.7, -0.2, -0.3]),
            "advantages": jagged([1.0, -1.0, 0.5], [0.5, 0.5, -2.0]),
            "teacher_logprobs": torch.nested.as_nested_tensor(
                [torch.full((length, 1), -50.0) for length in lengths], layout=torch.jagged
            ),
        },
        batch_size=2,
    )
    tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=5, global_batch_size=2)

    def outcome(loss: Any, **more: Any) -> tuple[float, list[Any]]:
        rows = [row[:length] for row, length in zip(sampled, lengths, strict=True)]
        output = {"log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}
        value, _ = loss(actor, model_output=output, data=batch.clone(), **more)
        (gradient,) = torch.autograd.grad(value, sampled)
        return float(value), gradient.tolist()

    expected = outcome(ppo_loss)
    assert outcome(distillation_ppo_loss, distillation_config=distillation) == expected
    assert any(map(any, expected[1]))
