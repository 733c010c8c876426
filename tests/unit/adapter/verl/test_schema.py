"""Keys and values for verl are checked against the installed verl, without importing it."""

import subprocess
import sys
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aworld_train.adapter.verl import config_classes, key_rules, schema
from aworld_train.errors import RecipeError
from aworld_train.recipe.tree import KeyPath, dotted, leaves, merge, nested
from tests.properties import examples

pytestmark = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")

NAMED = {"actor_rollout_ref": {"rollout": {"name": "transformers"}}}


def check(key: str, value: Any) -> None:
    given_part = nested(tuple(key.split(".")), value)
    schema.check(merge(schema.default_config(), given_part), given_part)


def refusal(key: str, value: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        check(key, value)
    return str(caught.value)


def test_verls_own_defaults_pass_their_check() -> None:
    defaults = schema.default_config()
    schema.check(defaults, defaults)
    resolved = schema.resolve(merge(defaults, NAMED))
    schema.check(resolved, resolved)


def test_changing_the_returned_defaults_changes_nothing() -> None:
    schema.default_config()["trainer"].clear()
    assert schema.default_config()["trainer"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("actor_rollout_ref.actor.ppo_epoch", "actor_rollout_ref.actor.ppo_epochs"),
        ("actor_rollout_ref.actor.lr", "actor_rollout_ref.actor.optim.lr"),
        ("actor", "actor_rollout_ref.actor"),
        ("trainer.total_training_step", "trainer.total_training_steps"),
        ("trainer.train_batch_size", "data.train_batch_size"),
        (
            "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtypes",
            "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype",
        ),
        ("actor_rollout_ref.rollout.server.timeouts", "actor_rollout_ref.rollout.server.timeout"),
        ("distillation.teacher_models.mine.model_pth", "distillation.teacher_models.mine.model_path"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_valid_one(key: str, meant: str) -> None:
    assert refusal(key, 1) == f"verl has no key `{key}`; did you mean `{meant}`?"


def test_a_map_without_keys_by_default_stays_closed() -> None:
    assert refusal("trainer.v1.sync.foo", 1) == "verl has no key `trainer.v1.sync.foo`"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("actor_rollout_ref.actor.ppo_epochs", "2", "expects a whole number, got '2'"),
        ("actor_rollout_ref.actor.ppo_epochs", 2.5, "expects a whole number, got 2.5"),
        ("actor_rollout_ref.actor.ppo_epochs", True, "expects a whole number, got True"),
        ("actor_rollout_ref.actor.ppo_epochs", None, "expects a whole number, got null"),
        ("actor_rollout_ref.actor.ppo_epochs", {"a": 1}, "expects a whole number, got a map"),
        ("actor_rollout_ref.actor.use_kl_loss", 1, "expects true or false, got 1"),
        ("actor_rollout_ref.actor.strategy", 2, "expects text, got 2"),
        ("actor_rollout_ref.actor.optim.betas", 0.9, "expects a list, got 0.9"),
        ("actor_rollout_ref.actor.optim.lr", "fast", "expects a number, got 'fast'"),
        (
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
            "8",
            "expects a whole number or null, got '8'",
        ),
        ("actor_rollout_ref.actor.optim", 3, "expects a map, got 3"),
        ("data.train_batch_size", [1], "expects a whole number, got a list"),
        ("trainer", "x", "expects a map, got 'x'"),
        ("ray_kwargs.ray_init", 3, "expects a map, got 3"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: Any, sentence: str) -> None:
    assert refusal(key, value) == f"verl key `{key}` {sentence}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.optim.lr", 1),
        ("actor_rollout_ref.actor.entropy_coeff", 0.5),
        ("actor_rollout_ref.actor.ppo_epochs", "${actor_rollout_ref.rollout.n}"),
        ("actor_rollout_ref.model.target_modules", ["q_proj"]),
        ("actor_rollout_ref.model.target_modules", "all-linear"),
        ("data.train_files", ["a.parquet", "b.parquet"]),
        ("trainer.logger", "console"),
        ("trainer.total_training_steps", 3),
        ("trainer.max_actor_ckpt_to_keep", None),
        ("algorithm.rollout_correction.rollout_is_threshold", "0.5_2.0"),
        ("algorithm.rollout_correction.rollout_is_threshold", 2),
    ],
)
def test_every_type_that_verl_takes_is_accepted(key: str, value: Any) -> None:
    check(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", "fp32"),
        ("actor_rollout_ref.actor.fsdp_config.router_replay.mode", "R2"),
        ("actor_rollout_ref.actor.policy_loss.rollout_correction.bypass_mode", True),
        ("actor_rollout_ref.rollout.agent.agent_loop_manager_class", "my.Manager"),
        ("actor_rollout_ref.rollout.disaggregation.mooncake_protocol", "rdma"),
        ("actor_rollout_ref.rollout.server.timeout", 3),
        ("actor_rollout_ref.rollout.trace.token2text", True),
        ("actor_rollout_ref.actor.checkpoint.save_lora_only", True),
        ("distillation.teacher_models.mine.inference.repetition_penalty", 1.1),
    ],
)
def test_fields_that_only_verls_dataclasses_have_are_accepted(key: str, value: Any) -> None:
    check(key, value)


@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.model.override_config.attn_implementation",
        "actor_rollout_ref.actor.optim.override_optimizer_config.eps",
        "actor_rollout_ref.rollout.engine_kwargs.transformers.anything",
        "actor_rollout_ref.rollout.custom.anything",
        "data.apply_chat_template_kwargs.enable_thinking",
        "ray_kwargs.ray_init.runtime_env.env_vars.NAME",
        "reward.custom_reward_function.reward_kwargs.timeout",
        "trainer.v1.sampler.sampler_kwargs.min_group",
    ],
)
def test_maps_that_verl_only_hands_on_are_open(key: str) -> None:
    check(key, "anything")


def test_the_queues_own_settings_are_known() -> None:
    check("transfer_queue.backend.SimpleStorage.ssd_offload.enabled", True)
    assert "did you mean" in refusal("transfer_queue.backend.SimpleStorage.ssd_offload.enable", True)


def test_another_dataclass_of_verl_brings_its_own_fields() -> None:
    optim = {"_target_": "verl.workers.config.McoreOptimizerConfig", "muon_momentum": 0.9}
    check("actor_rollout_ref.actor.optim", optim)
    assert "verl has no key" in refusal("actor_rollout_ref.actor.optim.muon_momentum", 0.9)
    assert "verl has no key" in refusal("actor_rollout_ref.actor.optim", optim | {"zap": 1})


def test_a_class_from_elsewhere_takes_any_field() -> None:
    check("actor_rollout_ref.actor.optim", {"_target_": "mine.Optimizer", "zap": 1})


def test_sections_that_the_trainer_no_longer_reads_are_refused() -> None:
    message = refusal("custom_reward_function.path", "reward.py")
    assert message == (
        "verl's trainer does not read `custom_reward_function`; use `reward.custom_reward_function`"
    )


def test_what_verl_sets_itself_cannot_be_set() -> None:
    assert "verl has no key `actor_rollout_ref.model.hf_config`" in refusal(
        "actor_rollout_ref.model.hf_config", 1
    )


def test_all_faults_are_said_at_once() -> None:
    part = {"trainer": {"foo": 1, "nnodes": "two"}, "data": {"seed": 1}}
    with pytest.raises(RecipeError, match=r"^2 problems:\n"):
        schema.check(merge(schema.default_config(), part), part)


def test_resolving_leaves_no_interpolation_and_no_missing_value() -> None:
    config = merge(schema.default_config(), NAMED)
    config["data"]["max_response_length"] = 77
    resolved = schema.resolve(config)
    values = [value for _, value in leaves(resolved)]
    assert not [value for value in values if isinstance(value, str) and ("${" in value or value == "???")]
    assert resolved["actor_rollout_ref"]["rollout"]["response_length"] == 77
    assert resolved["reward"]["reward_model"]["rollout"]["name"] is None
    assert config["reward"]["reward_model"]["rollout"]["name"] == "???"


def test_a_missing_value_is_named_unless_its_section_is_off() -> None:
    with pytest.raises(RecipeError, match=r"verl needs `actor_rollout_ref\.rollout\.name`"):
        schema.resolve(schema.default_config())
    enabled = merge(schema.default_config(), NAMED)
    enabled["reward"]["reward_model"]["enable"] = True
    with pytest.raises(RecipeError, match=r"verl needs `reward\.reward_model\.rollout\.name`"):
        schema.resolve(enabled)


def test_what_is_below_a_switch_that_is_off_is_null_and_lookups_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hush")
    config = {
        "a": {"enable": False, "b": "???", "inner": {"enable": True, "c": "???"}},
        "d": {"enabled": False, "e": [1, {"f": "???"}], "g": ["???"]},
        "h": {"lookup": "${oc.env:KEY}", "copy": "${h.lookup}", "sum": "${k}"},
        "k": 7,
    }
    assert schema.resolve(config) == {
        "a": {"enable": False, "b": None, "inner": {"enable": True, "c": None}},
        "d": {"enabled": False, "e": [1, {"f": None}], "g": [None]},
        "h": {"lookup": "${oc.env:KEY}", "copy": "${oc.env:KEY}", "sum": 7},
        "k": 7,
    }


def test_an_interpolation_that_leads_nowhere_names_its_key() -> None:
    config = merge(schema.default_config(), NAMED)
    config["trainer"]["nnodes"] = "${no.such.key}"
    with pytest.raises(RecipeError, match=r"verl key `trainer\.nnodes` cannot be resolved"):
        schema.resolve(config)


def test_every_exception_is_still_needed_by_the_installed_verl() -> None:
    folder = config_classes.verl_folder()
    source = "\n".join(file.read_text() for file in folder.rglob("*.py"))
    for keys in key_rules.READ_ANYWAY.values():
        assert [key for key in keys if f'"{key}"' not in source] == []
    maps = {dotted(path) for path in _maps(schema.default_config(), ())}
    maps |= {"actor_rollout_ref.actor.optim.override_optimizer_config"}
    read = {f"{where}.{key}" for where, keys in key_rules.READ_ANYWAY.items() for key in keys}
    for pattern in key_rules.OPEN_MAPS:
        assert any(fnmatchcase(path, pattern) for path in maps | read), pattern
    for key in [*key_rules.ALSO_TAKES, *key_rules.IGNORED_SECTIONS, *key_rules.NAMED_ENTRIES]:
        node: Any = schema.default_config()
        for name in key.split("."):
            node = node[name]


def _maps(tree: Any, path: KeyPath) -> list[KeyPath]:
    if not isinstance(tree, dict):
        return []
    return [path, *(found for key, value in tree.items() for found in _maps(value, (*path, key)))]


@examples(60)
@given(st.data())
def test_any_slip_of_the_pen_in_a_default_key_is_refused(data: st.DataObject) -> None:
    open_below = ("override_config", "engine_kwargs", "ray_init", "nsight_options", "teacher_models")
    paths = [path for path, _ in leaves(schema.default_config()) if path[-1] != "_target_"]
    closed = [path for path in paths if not any(part.endswith(open_below) for part in path)]
    path = data.draw(st.sampled_from([path for path in closed if path[0] not in key_rules.IGNORED_SECTIONS]))
    at = data.draw(st.integers(0, len(path[-1]) - 1))
    wrong = path[-1][:at] + data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_")) + path[-1][at:]
    assume(not path[-1].isdigit())
    assume((*path[:-1], wrong) not in paths)
    assert "verl has no key" in refusal(".".join((*path[:-1], wrong)), 1)


def test_checking_imports_neither_verl_nor_torch() -> None:
    script = (
        "import sys\n"
        "from aworld_train.adapter.verl import schema\n"
        "schema.check(schema.default_config(), schema.default_config())\n"
        "print(sorted({'verl', 'torch', 'ray', 'transfer_queue', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_the_defaults_are_those_of_the_installed_wheel() -> None:
    assert (config_classes.verl_folder() / "trainer/config/_generated_ppo_trainer.yaml").is_file()
    assert len(list(leaves(schema.default_config()))) > 500
    assert Path(find_spec("verl").origin or "").parent == config_classes.verl_folder()  # type: ignore[union-attr]
