"""Values of the right type that make no sense together are refused before anything starts."""

import itertools

import pytest

from aworld_train import recipe
from aworld_train.errors import RecipeError
from aworld_train.recipe.checks import episodes_per_update, missing_for_training
from aworld_train.recipe.faults import Check
from aworld_train.recipe.schema import CassetteMode, CassetteSection


def refusal(*overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe.load({}, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "agent.max_turns",
        "agent.max_tool_result_chars",
        "agent.tool_timeout",
        "env.ready_timeout",
        "agent.episode_timeout",
        "algorithm.clip_low",
        "algorithm.clip_high",
        "cluster.gpus_per_node",
        "cluster.slurm.cpus_per_node",
        "cluster.slurm.save_before",
        "dataset.max_prompt_tokens",
        "dataset.val_limit",
        "env.workers",
        "model.lora.alpha",
        "reward.timeout",
        "rollout.agent_workers",
        "rollout.gpu_memory",
        "rollout.max_response_tokens",
        "rollout.max_running",
        "rollout.n",
        "rollout.temperature",
        "rollout.top_k",
        "rollout.top_p",
        "trainer.batch_size",
        "trainer.grad_clip",
        "trainer.keep_checkpoints",
        "trainer.lr",
        "trainer.microbatch_size",
        "trainer.minibatch_size",
        "trainer.stall_timeout",
        "trainer.steps",
    ],
)
def test_zero_is_refused_where_it_would_do_nothing(key: str) -> None:
    assert f"override {key}=0: `{key}` must be " in refusal(f"{key}=0")


def test_a_run_does_not_end_early_by_validations_that_it_has_not() -> None:
    assert "`trainer.val_every` is 0" in refusal("trainer.early_stop=2", "trainer.val_every=0")


@pytest.mark.parametrize(
    "key",
    [
        "algorithm.entropy_coef",
        "algorithm.kl_coef",
        "env.recovery_timeout",
        "model.lora.rank",
        "trainer.seed",
        "trainer.warmup_steps",
        "trainer.weight_decay",
    ],
)
def test_negative_amounts_are_refused_and_zero_is_not(key: str) -> None:
    assert f"`{key}` must not be negative" in refusal(f"{key}=-1")
    recipe.load({}, [f"{key}=0"])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rollout.top_p=1.01", "`rollout.top_p` must be above 0 and at most 1, it is 1.01"),
        ("rollout.gpu_memory=2", "`rollout.gpu_memory` must be above 0 and at most 1, it is 2.0"),
        ("trainer.lr=.nan", "`trainer.lr` must be a finite number, it is nan"),
        ("rollout.temperature=.inf", "`rollout.temperature` must be a finite number, it is inf"),
        ("name=../up", "`name` must be letters, digits"),
        ("name=a/b", "`name` must be letters, digits"),
        ("name=.hidden", "`name` must be letters, digits"),
        ("name=" + "a" * 101, "`name` must be letters, digits"),
        ("reward.function=score", "`reward.function` must be `module:function` or `file.py:function`"),
        ("env.url=localhost:8080", "`env.url` must begin with http:// or https://"),
        ("env.servers=['a,b']", "`env.servers` must hold names without commas"),
        ("env.servers=[a, a]", "`env.servers` names a server twice"),
        ("model.path=' '", "`model.path` must not be empty"),
        ("rollout.n=1", "grpo compares the episodes of one task, so `rollout.n` must be at least 2"),
        (
            "trainer.minibatch_size=5",
            "`trainer.batch_size` (16) must be a multiple of `trainer.minibatch_size` (5)",
        ),
        ("trainer.minibatch_size=32", "`trainer.batch_size` (16) must be a multiple of"),
        ("cluster.gpus_per_node=3", "must be a multiple of the 3 ranks that share them"),
        ("cluster.nodes=2", "the launcher `local` has one machine; set `cluster.launcher`"),
        ("cluster.slurm.options=[-q high]", "`cluster.slurm.options` are sbatch's long options"),
        ('cluster.slurm.setup=["a\\nb"]', "`cluster.slurm.setup.0` must be one line"),
        ("cluster.slurm.account=${oc.env:HOME}", "takes nothing from the environment"),
        ("trainer.microbatch_size=7", "must be a multiple of `trainer.microbatch_size` (7)"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(override: str, sentence: str) -> None:
    assert sentence in refusal(override)


def test_an_environment_is_started_or_used_but_not_both() -> None:
    assert "and the other to null" in refusal("env.docker_dir=gaia", "env.url=http://localhost:1/mcp")


@pytest.mark.parametrize("mode", ["record", "replay", "replay_or_record"])
def test_a_cassette_needs_a_file(mode: str) -> None:
    assert f"`env.cassette.mode` is {mode}, which needs a file" in refusal(f"env.cassette.mode={mode}")
    loaded = recipe.load({}, [f"env.cassette.mode={mode}", "env.cassette.path=calls.jsonl"])
    assert loaded.env.cassette.mode is CassetteMode(mode)
    assert recipe.load({}, ["env.cassette.mode=off"]).env.cassette == CassetteSection()


@pytest.mark.parametrize("rule", ["5", "{}", "{ignor: [now]}", "{ignore: now}", "{ignore: [5]}", "[now]"])
def test_a_cassette_s_rule_is_a_list_of_arguments_to_ignore(rule: str) -> None:
    error = refusal(f"env.cassette.rules={{search: {rule}}}")
    assert "`env.cassette.rules.search` must be {ignore: [argument, ...]}" in error
    rules = recipe.load({}, ["env.cassette.rules.search={ignore: [now, seed]}"]).env.cassette.rules
    assert rules == {"search": {"ignore": ["now", "seed"]}}


def test_all_nonsense_is_said_at_once() -> None:
    message = refusal("trainer.steps=0", "rollout.top_p=3", "cluster.gpus_per_node=0")
    assert message.startswith("3 problems:\n")


def test_one_episode_per_task_is_fine_without_a_group_baseline() -> None:
    assert recipe.load({}, ["rollout.n=1", "algorithm.name=reinforce_plus_plus"]).rollout.n == 1


def test_a_base_recipe_loads_but_cannot_be_trained() -> None:
    base = recipe.load({"name": "base"})
    with pytest.raises(RecipeError) as caught:
        recipe.load(base, also=[Check(missing_for_training)])
    keys = ("model.path", "dataset.train", "dataset.val")
    assert [
        f"`{key}` is not set" in line
        for key, line in zip(keys, str(caught.value).splitlines()[1:], strict=True)
    ]
    given = ["model.path=tiny", "dataset.train=train.parquet", "dataset.val=val.parquet"]
    assert recipe.load(base, given, also=[Check(missing_for_training)]).model.path == "tiny"


KINDS = {"command": "[python, a.py]", "builder": "a:build", "aworld": "a.yaml", "loop": "a:Mine"}


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(KINDS, 2)])
def test_an_agent_is_of_one_kind(first: str, second: str) -> None:
    error = refusal(f"agent.{first}={KINDS[first]}", f"agent.{second}={KINDS[second]}")
    assert f"an agent is one of `{first}`, `{second}`: set one and leave the others out" in error


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_of_any_kind_alone_is_fine(kind: str) -> None:
    assert getattr(recipe.load({}, [f"agent.{kind}={KINDS[kind]}"]).agent, kind)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ("{MODE: 5}", "`agent.environment.MODE` must be text (put it in quotes)"),
        ("{MODE: null}", "`agent.environment.MODE` must be text"),
        ('{MODE: "a\\0b"}', "without the character NUL"),
        ("{'a-b': x}", "`agent.environment.a-b`: an environment variable has a name of"),
        ("{'': x}", "an environment variable has a name of"),
        ("{OPENAI_BASE_URL: x}", "`agent.environment.OPENAI_BASE_URL` is set by the run for each episode"),
        ("{MCP_SERVERS: x}", "`agent.environment.MCP_SERVERS` is set by the run for each episode"),
    ],
)
def test_a_variable_that_a_program_cannot_have_is_refused_by_its_key(variables: str, sentence: str) -> None:
    assert sentence in refusal("agent.command=[python, a.py]", f"agent.environment={variables}")


@pytest.mark.parametrize("kind", ["builder", "aworld", "loop"])
def test_variables_are_for_programs_alone(kind: str) -> None:
    error = refusal(f"agent.{kind}={KINDS[kind]}", "agent.environment={MODE: fast}")
    assert "`agent.environment` is for the program of `agent.command`" in error
    assert "`agent.environment` is for the program" in refusal("agent.environment={MODE: fast}")


@pytest.mark.parametrize("policy", ["discard_tools", "keep_last_k", "summarize"])
def test_a_context_policy_needs_a_budget_that_can_be_exceeded(policy: str) -> None:
    sizes = [
        "dataset.max_prompt_tokens=100",
        "rollout.max_response_tokens=200",
        f"agent.context.policy={policy}",
    ]
    assert "`agent.context.budget` says when a history is too long: set it" in refusal(*sizes)
    error = refusal(*sizes, "agent.context.budget=300")
    assert "`agent.context.budget` (300) must be below the 300 tokens that a conversation may have" in error
    assert recipe.load({}, [*sizes, "agent.context.budget=299"]).agent.context.budget == 299


@pytest.mark.parametrize("key", ["agent.context.budget", "agent.context.condense_over", "rollout.min_group"])
def test_zero_is_refused_for_what_may_be_left_out(key: str) -> None:
    assert f"`{key}` must be at least 1" in refusal(f"{key}=0")


def test_a_group_cannot_need_more_healthy_episodes_than_it_has() -> None:
    error = refusal("rollout.n=4", "rollout.min_group=5")
    assert "`rollout.min_group` (5) must be at most `rollout.n` (4)" in error
    assert recipe.load({}, ["rollout.n=4", "rollout.min_group=4"]).rollout.min_group == 4


@pytest.mark.parametrize(
    "overrides", [["agent.context.condense_over=100"], ["agent.context.condensers=[helper]"]]
)
def test_who_condenses_and_when_go_together(overrides: list[str]) -> None:
    helper = "endpoints.helper={url: 'http://there/v1', model: m}"
    assert "`agent.context.condense_over` and `agent.context.condensers` go together" in refusal(
        helper, *overrides
    )


@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [
        ("5", "must be a map with url and model"),
        ("{url: 'http://there/v1'}", "must be a map with url and model"),
        (
            "{url: 'http://there/v1', model: m, temperature: 1}",
            "may have no keys but key_variable, model, price_in, price_out, timeout, url",
        ),
        ("{url: 'there/v1', model: m}", ".url` must begin with http:// or https://, it is 'there/v1'"),
        ("{url: 'http://there/v1', model: ' '}", ".model` must be the name of a model, it is ' '"),
        ("{url: 'http://there/v1', model: 5}", ".model` must be the name of a model, it is 5"),
        ("{url: 'http://there/v1', model: m, timeout: 0}", ".timeout` must be seconds above 0, it is 0"),
        (
            "{url: 'http://there/v1', model: m, timeout: soon}",
            ".timeout` must be seconds above 0, it is 'soon'",
        ),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused(endpoint: str, sentence: str) -> None:
    error = refusal(f"endpoints.helper={endpoint}")
    assert "`endpoints.helper" in error
    assert sentence in error


def test_a_key_where_its_variable_belongs_is_refused_without_showing_it() -> None:
    error = refusal("endpoints.helper={url: 'http://there/v1', model: m, key_variable: sk-very-secret}")
    assert "`endpoints.helper.key_variable` must be the name of an environment variable" in error
    endpoint = {"url": "http://there/v1", "model": "m", "key_variable": "HELPER_KEY", "timeout": 2.5}
    assert recipe.load({"endpoints": {"helper": endpoint}}).endpoints == {"helper": endpoint}


@pytest.mark.parametrize("key", ["summarizer=helpr", "condensers=[helpr]"])
def test_an_endpoint_that_is_used_has_to_be_there(key: str) -> None:
    error = refusal("endpoints.helper={url: 'http://there/v1', model: m}", f"agent.context.{key}")
    name = key.partition("=")[0]
    assert f"`agent.context.{name}` names the endpoint 'helpr', which `endpoints` does not have" in error
    assert "Did you mean 'helper'?" in error


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("reward.scorer=gaja", "`reward.scorer` is 'gaja', which is none of number, gaia,"),
        ("reward.answer_schema=boxd", "`reward.answer_schema`: "),
        ("reward.composite.correct=composite", "`reward.composite.correct` cannot be composite itself"),
        ("reward.composite.correct=exactly", "`reward.composite.correct` is 'exactly', which is none of"),
        (
            "reward.composite.weights.corect=1",
            "`reward.composite.weights` has 'corect', which is not one of correct, format, tool_use, length, "
            "cost. Did you mean 'correct'?",
        ),
        (
            "reward.composite.weights={format: x}",
            "`reward.composite.weights` must be numbers, format has 'x'",
        ),
        (
            "reward.composite.weights.format=true",
            "`reward.composite.weights` must be numbers, format has True",
        ),
        ("reward.composite.gates=[tools_use]", "`reward.composite.gates` has 'tools_use'"),
        ("reward.composite.weights.correct=0", "`reward.composite.weights` has no weight but 0"),
        (
            "reward.composite.weights.correct=.nan",
            "`reward.composite.weights.correct` must be a finite number",
        ),
        ("reward.composite.max_chars=0", "`reward.composite.max_chars` must be at least 1, it is 0"),
        ("reward.composite.max_calls=-1", "`reward.composite.max_calls` must be at least 1, it is -1"),
        ("reward.judge.models=[big]", "`reward.judge.models` names the endpoint 'big'"),
        ("reward.judge.concurrency=0", "`reward.judge.concurrency` must be at least 1"),
        ("reward.judge.attempts=0", "`reward.judge.attempts` must be at least 1"),
        ("reward.judge.per_minute=-1", "`reward.judge.per_minute` must not be negative"),
    ],
)
def test_a_reward_that_makes_no_sense_is_refused_by_its_key(override: str, sentence: str) -> None:
    error = refusal(override)
    assert sentence in error
    assert f"override {override}" in error


GPU = ("rollout.engine=vllm", "cluster.gpus_per_node=2", "cluster.nodes=2", "cluster.launcher=slurm")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["rollout.tensor_parallel=2"], "`rollout.tensor_parallel` is for GPUs"),
        (["trainer.sequence_parallel=2"], "`trainer.sequence_parallel` is for GPUs"),
        (["trainer.offload=all"], "`trainer.offload` is for GPUs"),
        (
            [*GPU, "rollout.tensor_parallel=3"],
            "`rollout.tensor_parallel` (3) must divide the 4 GPUs of the run",
        ),
        ([*GPU, "trainer.sequence_parallel=3"], "`trainer.sequence_parallel` (3) must divide the 4 GPUs"),
        ([*GPU, "trainer.max_batch_tokens=4096"], "is used with `trainer.dynamic_batches: true` only"),
        (
            [*GPU, "trainer.max_batch_tokens=1000", "trainer.dynamic_batches=true"],
            "`trainer.max_batch_tokens` (1000) is less than the longest episode, which has 2048 tokens",
        ),
        (["dataset.train=[]"], "`dataset.train` must name at least one file"),
        (["dataset.val=[a.parquet, a.parquet]"], "`dataset.val` names a file twice"),
        (["dataset.train=5"], "`dataset.train` expects text or a list of text or null, got 5"),
        (["model.hub=org/model"], "`model.hub` is for machines without the directory of `model.path`"),
        (["algorithm.clip_c=1.0"], "`algorithm.clip_c` must be above 1"),
        (["rollout.val_top_p=0"], "`rollout.val_top_p` must be above 0 and at most 1"),
        (["rollout.val_n=0"], "`rollout.val_n` must be at least 1"),
        (["rollout.val_temperature=-1"], "`rollout.val_temperature` must not be negative"),
        (["trainer.epochs=0"], "`trainer.epochs` must be at least 1"),
    ],
)
def test_a_word_of_the_field_that_cannot_be_carried_out_is_refused(
    overrides: list[str], sentence: str
) -> None:
    assert sentence in refusal(*overrides)


def test_ranks_that_share_sequences_take_one_part_of_a_batch() -> None:
    shared = [
        *GPU,
        "trainer.sequence_parallel=4",
        "trainer.batch_size=1",
        "trainer.microbatch_size=3",
        "rollout.n=3",
    ]
    assert episodes_per_update(recipe.load({}, shared)) == 3
    assert "must be a multiple of the 4 ranks" in refusal(*shared, "trainer.sequence_parallel=1")


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("NCCL-DEBUG=INFO", "an environment variable has a name of letters, digits and `_`"),
        ("NCCL_NVLS_ENABLE=1", "must be the value itself as text (put it in quotes)"),
        ("RAY_ADDRESS=auto", "is set by the run itself"),
        ("PATH=/bin", "is set by the run itself"),
        ("NCCL_IB_HCA=${oc.env:USER_HCA}", "must be the value itself as text"),
        ("HF_TOKEN=${oc.env:USER_HCA}", "looks like a secret"),
    ],
)
def test_a_variable_that_a_run_cannot_take_is_refused_by_its_key(
    variable: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_HCA", "hunter2")
    message = refusal(f"cluster.environment.{variable}")
    assert f"`cluster.environment.{variable.partition('=')[0]}`" in message
    assert sentence in message and "hunter2" not in message


DISTILLED = ("trainer.method=distill", "distill.teacher=org/teacher")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (DISTILLED[:1], "`distill.teacher` is not set: a model directory, a checkpoint"),
        (DISTILLED[1:], "`distill.teacher` is used with `trainer.method: distill` only"),
        ((*DISTILLED, "rollout.temperature=0.7"), "`rollout.temperature` is 0.7, and a teacher"),
        ((*DISTILLED, "distill.gpus=2"), "`distill.gpus` is for GPUs"),
        ((*DISTILLED, "distill.reward_coef=-1"), "`distill.reward_coef`"),
        ((*DISTILLED, "distill.reward_coef=1", "rollout.n=1"), "`rollout.n` must be at least 2"),
        (("trainer.method=distil",), "did you mean `distill`?"),
    ],
)
def test_a_teacher_and_its_method_go_together(overrides: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*overrides)


def test_a_teacher_alone_compares_no_episodes() -> None:
    loaded = recipe.load({}, [*DISTILLED, "rollout.n=1"])
    assert (loaded.teacher, loaded.compares_rewards, loaded.gpus_of_machine) == ("org/teacher", False, 2)
    assert recipe.load({}, [*DISTILLED, "distill.reward_coef=0.1"]).compares_rewards
    without = recipe.load({})
    assert (without.teacher, without.compares_rewards, without.gpus_of_machine) == (None, True, 1)
