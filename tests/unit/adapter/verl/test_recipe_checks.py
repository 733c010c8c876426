"""What VeRL, its engines or a run on it cannot use is refused with the recipe's key, and the rest is not."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.config_classes import verl_folder
from aworld_train.adapter.verl.recipe_checks import UNUSABLE_ESTIMATORS, faults
from aworld_train.recipe.tree import nested

pytestmark = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")

ROLLOUT = "verl.actor_rollout_ref.rollout"
CRITIC = "verl.critic.model.path=org/model"
MICRO_BATCH = "verl.critic.ppo_micro_batch_size_per_gpu"


def _faults(overrides: list[str], engine: str = "vllm", device: str = "cuda") -> dict[str, str]:
    parts = {"model": {"path": "org/model"}, "rollout": {"engine": engine}, "cluster": {"device": device}}
    return {".".join(key): text for key, text in faults(recipes.load(parts, overrides))}


@pytest.mark.parametrize(
    ("overrides", "engine", "device", "key", "sentence"),
    [
        ([], "transformers", "cuda", "rollout.engine", "samples on CPU alone, and cluster.device is cuda"),
        (["model.lora.rank=1"], "transformers", "cpu", "model.lora.rank", "transformers has no LoRA"),
        (["rollout.dtype=bfloat16"], "transformers", "cpu", "rollout.dtype", "computes in float32"),
        (
            ["verl.actor_rollout_ref.model.external_lib=my.module"],
            *("vllm", "cpu", "verl.actor_rollout_ref.model.external_lib", "cannot be set on a CPU"),
        ),
    ],
)
def test_a_device_has_its_engines_numbers_and_adapters(
    overrides: list[str], engine: str, device: str, key: str, sentence: str
) -> None:
    refused = _faults(overrides, engine, device)
    assert list(refused) == [key]
    assert sentence in refused[key]


@pytest.mark.parametrize(
    ("override", "key", "sentence"),
    [
        ("cluster.nodes=2", "cluster.nodes", "processes of one machine"),
        ("cluster.launcher=ray", "cluster.launcher", "processes of one machine"),
        ("dataset.shuffle=false", "dataset.shuffle", "shuffles the rows"),
        ("trainer.strategy=megatron", "trainer.strategy", "fsdp2 alone"),
        ("verl.optim.lr=1", "verl.optim.lr", "the recipe has a key for it, `trainer.lr`"),
        ("verl.model.path=x", "verl.model.path", "the recipe has a key for it, `model.path`"),
        ("verl.engine.strategy=fsdp", "verl.engine.strategy", "`trainer.strategy`"),
        ("verl.checkpoint.save_contents=[model]", "verl.checkpoint.save_contents", "a run is resumed from"),
        ("verl.data.truncation=left", "verl.data.truncation", "ids and masks already"),
        ("verl.optim.bettas=[0.9]", "verl.optim.bettas", "did you mean `optim.betas`?"),
        ("verl.actor_rollout_ref.actor.optim.lr=1", "verl.actor_rollout_ref", "verl has no key"),
        ("verl.trainer.seed=x", "verl.trainer.seed", "`trainer.seed`"),
    ],
)
def test_supervised_training_refuses_what_it_does_not_have(override: str, key: str, sentence: str) -> None:
    options = [override, *(["cluster.launcher=slurm"] if "nodes" in override else [])]
    refused = _faults(["trainer.method=sft", *options])
    assert list(refused) == [key]
    assert sentence in refused[key]


def test_supervised_training_takes_keys_of_its_trainer_and_lora_without_a_gpu() -> None:
    options = ["verl.optim.betas=[0.9, 0.98]", "verl.engine.use_torch_compile=false", "model.lora.rank=4"]
    for engine, device in (("transformers", "cpu"), ("vllm", "cuda")):
        assert not _faults(["trainer.method=sft", *options], engine, device)
    [refused] = _faults(
        ["trainer.method=sft", "verl.model.external_lib=my.module"], "transformers", "cpu"
    ).values()
    assert "cannot be set on a CPU" in refused


@pytest.mark.parametrize(
    ("overrides", "engine", "device"),
    [
        (["model.lora.rank=1", "rollout.dtype=bfloat16"], "vllm", "cpu"),
        (["model.lora.rank=0", "rollout.dtype=float32"], "transformers", "cpu"),
        (
            [
                *("model.lora.rank=1", "rollout.dtype=bfloat16"),
                "verl.actor_rollout_ref.model.external_lib=my.module",
            ],
            *("vllm", "cuda"),
        ),
    ],
)
def test_what_a_device_s_engine_can_do_passes(overrides: list[str], engine: str, device: str) -> None:
    assert not _faults(overrides, engine, device)


RAW_CORRECTION = "verl.algorithm.rollout_correction"
REJECTION = [f"{RAW_CORRECTION}.rollout_rs=seq_mean_k1", f"{RAW_CORRECTION}.rollout_rs_threshold='0.9_1.1'"]


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang"])
@pytest.mark.parametrize(
    ("override", "key", "sentence"),
    [
        ("rollout.top_p=0.8", "rollout.top_p", "samples from the whole distribution"),
        ("rollout.top_k=20", "rollout.top_k", "samples from the whole distribution"),
    ],
)
def test_no_engine_samples_from_a_part_of_what_the_trainer_computes(
    engine: str, override: str, key: str, sentence: str
) -> None:
    refused = _faults([override], engine, "cpu" if engine == "transformers" else "cuda")
    assert sentence in refused[key]


@pytest.mark.parametrize(
    ("overrides", "key", "sentence"),
    [
        (
            ["algorithm.loss=bypass_mode"],
            "algorithm.loss",
            "rejects rows, and an episode may have several",
        ),
        (
            ["algorithm.loss=geo_mean"],
            "algorithm.loss",
            "what an episode weighs depends on how many rows it has",
        ),
        (["algorithm.loss=gspo"], "", ""),
        (REJECTION[:1], f"{RAW_CORRECTION}.rollout_rs", "name the bounds"),
        (
            ["algorithm.rollout_correction=sequence", f"{RAW_CORRECTION}.bypass_mode=true"],
            *(f"{RAW_CORRECTION}.bypass_mode", "nothing to correct"),
        ),
        ([*REJECTION, f"{RAW_CORRECTION}.bypass_mode=true"], f"{RAW_CORRECTION}.bypass_mode", "nothing to"),
        ([f"{RAW_CORRECTION}.bypass_mode=true"], "", ""),
        (["algorithm.preset=minirl"], "", ""),
        (
            ["algorithm.preset=minirl", "algorithm.rollout_correction=token"],
            *("algorithm.rollout_correction", "nothing left to correct"),
        ),
        (
            ["algorithm.preset=minirl", f"{RAW_CORRECTION}.bypass_mode=false"],
            *(f"{RAW_CORRECTION}.bypass_mode", "which it sets"),
        ),
        (
            ["algorithm.preset=minirl", "verl.actor_rollout_ref.model.external_lib=[mine]"],
            *("verl.actor_rollout_ref.model.external_lib", "aworld_train.adapter.verl.minirl"),
        ),
        (["algorithm.age_decay=0.5"], "algorithm.age_decay", "algorithm.loss is vanilla"),
        (
            ["algorithm.preset=reinforce_pp", "rollout.n=1", "rollout.equal_group=drop"],
            *("rollout.equal_group", "nothing to compare"),
        ),
        (
            ["algorithm.preset=dapo", "verl.data.gen_batch_size=4"],
            *("verl.data.gen_batch_size", "one by one"),
        ),
        (["algorithm.rollout_correction=sequence", *REJECTION], "", ""),
    ],
)
def test_a_correction_is_of_whole_episodes_or_refused(overrides: list[str], key: str, sentence: str) -> None:
    refused = _faults(overrides)
    assert list(refused) == ([key] if key else [])
    assert not key or sentence in refused[key]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("trainer.my_api_key", "${oc.env:KEY}", "looks like a secret"),
        ("ray_kwargs.ray_init.namespace", "${oc.env:KEY}", "Ray shows what it is started with"),
        ("trainer.wandb_proxy", "${oc.env:KEY}", "Export HTTPS_PROXY instead"),
        ("trainer.my_api_key", None, ""),
        ("ray_kwargs.ray_init.namespace", "mine", ""),
        ("trainer.wandb_proxy", "http://proxy", ""),
        ("trainer.project_name", "${oc.env:KEY}", ""),
    ],
)
def test_a_variable_s_value_is_not_shown_by_ray_or_a_tracker(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str | None, sentence: str
) -> None:
    monkeypatch.setenv("KEY", "canary")
    recipe = recipes.load({"model": {"path": "org/model"}, "verl": nested(tuple(key.split(".")), value)})
    texts = [(path, text) for path, text in faults(recipe) if "verl has no key" not in text]
    assert [path for path, _ in texts] == ([("verl", *key.split("."))] if sentence else [])
    assert all(sentence in text for _, text in texts)


@pytest.mark.parametrize(
    ("overrides", "key", "sentence"),
    [
        (["algorithm.name=remax"], "algorithm.name", "needs reward_baselines"),
        (["algorithm.name=gdpo"], "algorithm.name", "verl.algorithm.gdpo_reward_keys"),
        (
            ["algorithm.name=gae"],
            "algorithm.name",
            f"algorithm.name=gae needs a critic: set verl.critic.model.path and {MICRO_BATCH}, or",
        ),
        (["algorithm.name=gae", CRITIC], "algorithm.name", f"needs a critic: set {MICRO_BATCH}, or"),
        (["algorithm.name=gae", f"{MICRO_BATCH}=8"], "algorithm.name", "set verl.critic.model.path, or"),
        (
            ["algorithm.name=gae", CRITIC, f"{MICRO_BATCH}=8", "verl.critic.enable=false"],
            "algorithm.name",
            "algorithm.name=gae needs a critic, and verl.critic.enable is false",
        ),
        (
            ["verl.critic.enable=true"],
            "verl.critic.enable",
            "verl.critic.enable needs a critic: set verl.critic.model.path",
        ),
        (["verl.trainer.critic_warmup=2"], "verl.trainer.critic_warmup", "would train nothing"),
        (["verl.data.train_max_samples=7"], "verl.data.train_max_samples", "fewer tasks than one step takes"),
        (["verl.data.gen_batch_size=5"], "verl.data.gen_batch_size", "must be a multiple of verl.data.gen"),
        (["verl.data.gen_batch_size=0"], "verl.data.gen_batch_size", "must be a multiple of verl.data.gen"),
        (
            [f"{ROLLOUT}.max_model_len=2047"],
            f"{ROLLOUT}.max_model_len",
            "is 2047, fewer than the 2048 tokens of the longest episode",
        ),
    ],
)
def test_what_the_estimator_or_the_sizes_need_is_named(overrides: list[str], key: str, sentence: str) -> None:
    refused = _faults(["trainer.batch_size=8", *overrides])
    assert list(refused) == [key]
    assert sentence in refused[key]


def test_a_critic_needs_a_gpu() -> None:
    refused = _faults(["algorithm.name=gae"], "transformers", "cpu")
    assert "which needs a GPU" in refused["algorithm.name"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.name=gae", CRITIC, f"{MICRO_BATCH}=8", "verl.trainer.critic_warmup=2"],
        ["algorithm.name=gae", CRITIC, "verl.critic.use_dynamic_bsz=true", "verl.critic.enable=true"],
        ["algorithm.name=gdpo", "verl.algorithm.gdpo_reward_keys=[accuracy]"],
        ["verl.trainer.critic_warmup=0", "verl.critic.enable=false"],
        ["verl.data.train_max_samples=8", "verl.data.gen_batch_size=4", f"{ROLLOUT}.max_model_len=2048"],
        ["verl.data.train_max_samples=-1", "verl.data.gen_batch_size=1"],
    ],
)
def test_an_estimator_and_sizes_with_what_they_need_pass(overrides: list[str]) -> None:
    assert not _faults(["trainer.batch_size=8", *overrides])


@pytest.mark.parametrize(
    "override",
    [
        "trainer.loggers=[nobody]",
        "rollout.max_running=8193",
        f"{ROLLOUT}.engine_kwargs.vllm.seed=1",
        "verl.trainer.no_key=1",
    ],
)
def test_names_sizes_and_arguments_are_checked_too(override: str) -> None:
    assert [key for key in _faults([override]) if key.startswith(override.partition("=")[0])]


def test_the_package_of_a_tracker_is_looked_for_where_the_run_s_packages_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.recipe.trackers.find_spec", lambda name: None)
    tracked = ["trainer.loggers=[swanlab]"]
    assert [key for key in _faults(tracked) if key.startswith("trainer.loggers")]
    assert not _faults([*tracked, "cluster.launcher=ray"])


def test_the_inputs_of_refused_estimators_are_computed_by_the_older_trainer_alone() -> None:
    current = "".join(file.read_text("utf-8") for file in (verl_folder() / "trainer/ppo/v1").glob("*.py"))
    older = (verl_folder() / "trainer/ppo/ray_trainer.py").read_text("utf-8")
    for field in UNUSABLE_ESTIMATORS.values():
        assert f'"{field}"' not in current
        assert f'"{field}"' in older
    assert "use_pf_ppo" not in current


def test_a_path_that_reads_as_a_reference_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "${x}").mkdir()
    for name in ("t.parquet", "model"):
        (folder / name).touch()
    monkeypatch.chdir(folder)
    given = ["model.path=model", "dataset.train=t.parquet", "dataset.val=/elsewhere.parquet"]
    problems = _faults(given, engine="transformers", device="cpu")
    assert {key: text.partition(", ")[0] for key, text in problems.items() if "reads as" in text} == {
        "model.path": f"`model.path`: {folder}/model has '${{' in its path",
        "dataset.train": f"`dataset.train`: {folder}/t.parquet has '${{' in its path",
    }


@pytest.mark.parametrize(
    ("overrides", "key", "sentence"),
    [
        (["cluster.launcher=ray"], "cluster.launcher", "on one machine alone"),
        (["rollout.engine=vllm"], "rollout.engine", "by the engine transformers alone"),
        (["verl.distillation.enabled=false"], "verl.distillation.enabled", "composes it from `distill`"),
        (["verl.distillation.teacher_models.teacher_model.inference.enforce_eager=false"], None, ""),
        ([], None, ""),
    ],
)
def test_a_teacher_is_where_it_can_be_served_and_as_the_recipe_says(
    overrides: list[str], key: str | None, sentence: str
) -> None:
    taught = ["trainer.method=distill", "distill.teacher=org/teacher"]
    refused = _faults([*taught, *overrides], "transformers", "cpu")
    assert list(refused) == ([key] if key else [])
    assert sentence in "".join(refused.values())
