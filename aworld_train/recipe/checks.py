"""Checks values that have the right type but are not usable, before anything heavy is imported."""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any
from urllib.parse import urlsplit

from aworld_train.errors import RewardError, suggestion
from aworld_train.recipe.agent_command import PROVIDED, VARIABLE, set_by_run
from aworld_train.recipe.bounds import FUNCTION_NAME, rules_of
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.env_text import EnvText, shown
from aworld_train.recipe.interpolation import is_number
from aworld_train.recipe.output import plain_dict
from aworld_train.recipe.schema import (
    AGENT_KINDS,
    AgentSection,
    CassetteMode,
    ContextPolicy,
    EnvBackend,
    LauncherName,
    Method,
    Offload,
    Recipe,
    Strategy,
)
from aworld_train.recipe.secret_keys import looks_secret
from aworld_train.recipe.tree import KeyPath, dotted, leaves
from aworld_train.rollout.formats import unknown_name
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep

# Their baseline is computed from the other episodes of the task, so a group of one has no baseline.
_GROUP_BASELINES = {"grpo", "grpo_vectorized", "rloo", "rloo_vectorized"}

_ENDPOINT_KEYS = {"url", "model", "key_variable", "timeout", "price_in", "price_out"}
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_SIZED = ("trainer", "rollout", "cluster", "dataset", "model")


def problems(recipe: Recipe, faulty: Collection[KeyPath] = ()) -> Iterator[tuple[KeyPath, str]]:
    """The faults of ``recipe``: the key and one sentence for each.

    Keys in ``faulty`` have known faults and their default here, so that nothing follows from them.
    """
    if isinstance(recipe.name, EnvText) and not all(map(is_number, recipe.name.lookups.values())):
        yield (
            ("name",),
            "`name` names the run's folder, where everybody reads it, so it takes nothing but numbers from the "
            "environment; give it on the command line instead, as name=...",
        )
    faulty_keys = set(faulty)
    for path, text in _single_values(recipe):
        faulty_keys.add(path)
        yield path, text
    yield from _environment(recipe)
    yield from _cassette(recipe)
    yield from _agent(recipe)
    yield from _tool_parser(recipe)
    yield from _endpoints(recipe)
    yield from _reward(recipe)
    yield from _files(recipe)
    yield from _cluster_environment(recipe)
    yield from _cluster(recipe)
    yield from _distill(recipe)
    yield from _store(recipe)
    yield from _evaluation(recipe)
    if not any(path[0] in _SIZED for path in faulty_keys):
        yield from _sizes(recipe)
        yield from _parallel(recipe)


def _store(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    store = recipe.store
    try:
        parse_keep(store.keep)
    except ValueError as error:
        yield ("store", "keep"), str(error)
    for pattern in store.redact:
        try:
            Redactor([pattern])
        except ValueError as error:
            yield ("store", "redact"), f"`store.redact` has {error}"
    if store.url is not None:
        if not str(store.url).startswith(("postgresql://", "postgres://")):
            yield (
                ("store", "url"),
                "`store.url` must be the address of a PostgreSQL database, as postgresql://user@host:5432/database; "
                "leave it out to keep episodes in the run's folder",
            )
        elif not isinstance(store.url, EnvText) and urlsplit(store.url).password:
            yield (
                ("store", "url"),
                "`store.url` has a password, which a recipe must not hold: put the address into an environment "
                "variable and refer to it, as ${oc.env:STORE_URL}",
            )
        if store.max_gb is not None:
            yield (
                ("store", "max_gb"),
                "`store.max_gb` is for the database in a run's folder; with `store.url` use `aworld-train runs prune`",
            )


def _evaluation(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    section = recipe.eval
    for model, prices in section.prices.items():
        named = prices if isinstance(prices, dict) else {}
        if named.keys() != {"input", "output"} or not all(map(_is_price, named.values())):
            yield (
                ("eval", "prices", model),
                f"`eval.prices.{model}` must be {{input: PRICE, output: PRICE}} of a million tokens, it is {prices!r}",
            )
    if section.max_cost is not None and not section.prices:
        yield (("eval", "max_cost"), "`eval.max_cost` needs the price of the model's tokens in `eval.prices`")


def _is_price(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


def missing_for_training(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """The keys that only training needs and that a recipe lacks, as a base of other recipes may."""
    if recipe.model.location is None:
        yield (
            ("model", "path"),
            "`model.path` is not set: the folder of a model, or its name on the hub in `model.hub`",
        )
    for split, use in (("train", "training"), ("val", "validation")):
        if not getattr(recipe.dataset, f"{split}_files"):
            rows, command = ("tasks", "build") if recipe.plays_episodes else ("token rows", "rows")
            yield (
                ("dataset", split),
                f"`dataset.{split}` is not set: a Parquet file of {use} {rows}; "
                f"`aworld-train dataset {command}` makes one"
                + ("; to evaluate without training, check it with --for eval" if split == "train" else ""),
            )


def episodes_per_update(recipe: Recipe) -> int:
    """Episodes that one rank trains on between two optimiser updates; ranks that share sequences count as one."""
    minibatch = recipe.trainer.minibatch_size or recipe.trainer.batch_size
    return minibatch * recipe.rollout.n // _shares(recipe)


def batch_tokens(recipe: Recipe) -> int:
    """Most tokens of one pass on one GPU; by default four of the longest sequences, as in VeRL's examples."""
    return recipe.trainer.max_batch_tokens or 4 * recipe.max_episode_tokens


def _shares(recipe: Recipe) -> int:
    """Into how many parts a batch is divided: one for each group of ranks that work on the same rows."""
    return max(1, recipe.cluster.ranks // recipe.trainer.ranks_per_batch)


def _single_values(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for path, value in leaves(plain_dict(recipe)):
        if path[0] != "raw" and isinstance(value, float) and not math.isfinite(value):
            yield path, f"`{'.'.join(path)}` must be a finite number, it is {value}"
    yield from _bounds(recipe)


def _bounds(section: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    section_type: Any = type(section)
    for name, rules in rules_of(section_type).items():
        value, key = getattr(section, name), (*path, name.rstrip("_"))
        if is_dataclass(value):
            yield from _bounds(value, key)
        elif value is not None and not (isinstance(value, float) and not math.isfinite(value)):
            for rule in (rule for rule in rules if not rule.passes(value)):
                yield key, f"`{dotted(key)}` {rule.sentence}, it is {value!r}"


def _environment(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    env = recipe.env
    if env.mcp_servers is not None and not isinstance(env.mcp_servers, str | dict):
        yield ("env", "mcp_servers"), "`env.mcp_servers` must be the path of a JSON file, or its content"
    if env.mcp_servers is not None and (env.docker_dir is not None or env.url is not None):
        yield (
            ("env", "mcp_servers"),
            "set `env.mcp_servers`, or what it replaces (`env.docker_dir`, `env.url`), and the others to null",
        )
    if env.docker_dir is not None and env.url is not None:
        yield (
            ("env", "url"),
            "set `env.docker_dir` (start one) or `env.url` (use one that is up) and the other to null",
        )
    if env.backend is EnvBackend.none:
        others = {
            "docker_dir": env.docker_dir is not None,
            "mcp_servers": env.mcp_servers is not None,
            "url": env.url is not None,
            "servers": bool(env.servers),
            "cassette": env.cassette.mode is not CassetteMode.off,
        }
        for name in (name for name, is_set in others.items() if is_set):
            yield ("env", name), f"`env.{name}` is set, and `env.backend` is none: the agent has no tools"
    # Server names travel in an HTTP header as a comma-separated list.
    if any(not server.strip() or "," in server for server in env.servers):
        yield ("env", "servers"), "`env.servers` must hold names without commas, none of them empty"
    elif len(set(env.servers)) < len(env.servers):
        yield ("env", "servers"), "`env.servers` names a server twice"


def _cassette(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    cassette = recipe.env.cassette
    if cassette.mode is not CassetteMode.off and cassette.path is None:
        yield (
            ("env", "cassette", "path"),
            f"set `env.cassette.path`: `env.cassette.mode` is {cassette.mode.value}, which needs a file",
        )
    for tool, rule in cassette.rules.items():
        names = rule.get("ignore") if isinstance(rule, dict) and rule.keys() == {"ignore"} else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            yield (
                ("env", "cassette", "rules", tool),
                f"`env.cassette.rules.{tool}` must be {{ignore: [argument, ...]}}, it is {rule!r}",
            )


def _agent(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    agent, context = recipe.agent, recipe.agent.context
    kinds = [kind for kind in AGENT_KINDS if getattr(agent, kind)]
    if len(kinds) > 1:
        yield (
            ("agent", kinds[1]),
            f"an agent is one of `{'`, `'.join(kinds)}`: set one and leave the others out",
        )
    yield from _agent_program(agent)
    if context.policy is not ContextPolicy.off:
        room = recipe.max_episode_tokens
        if context.budget is None:
            yield ("agent", "context"), "`agent.context.budget` says when a history is too long: set it"
        elif context.budget >= room:
            yield (
                ("agent", "context", "budget"),
                f"`agent.context.budget` ({context.budget}) must be below the {room} tokens that a conversation may "
                "have (`dataset.max_prompt_tokens` and `rollout.max_response_tokens`), or it is never used",
            )
    if (context.condense_over is None) != (not context.condensers):
        yield ("agent", "context"), "`agent.context.condense_over` and `agent.context.condensers` go together"
    if recipe.rollout.min_group is not None and recipe.rollout.min_group > recipe.rollout.n:
        yield (
            ("rollout", "min_group"),
            f"`rollout.min_group` ({recipe.rollout.min_group}) must be at most `rollout.n` ({recipe.rollout.n})",
        )


def _agent_program(agent: AgentSection) -> Iterator[tuple[KeyPath, str]]:
    command = agent.command
    hidden = any(isinstance(part, EnvText) for part in command)
    starts_python = len(command) > 1 and shown(command[0]) in ("python", "python3")
    if hidden and not (starts_python and (command[1] == "-m" or not command[1].startswith("-"))):
        yield (
            ("agent", "command"),
            "`agent.command` refers to an environment variable, and a command line is open to every user of the "
            "machine: only `[python, script.py, ...]` and `[python, -m, module, ...]` get such arguments in another "
            "way. Write the value, or pass it as a variable in `agent.environment`",
        )
    if agent.environment and not command:
        yield (
            ("agent", "environment"),
            "`agent.environment` is for the program of `agent.command`; other agents run in the trainer's own "
            "processes and see its environment",
        )
    for name, value in agent.environment.items():
        key: KeyPath = ("agent", "environment", name)
        if not VARIABLE.fullmatch(name):
            yield key, f"`{dotted(key)}`: an environment variable has a name of letters, digits and `_`"
        elif name in PROVIDED:
            yield key, f"`{dotted(key)}` is set by the run for each episode; leave it out"
        elif not isinstance(value, str) or "\0" in value:
            yield key, f"`{dotted(key)}` must be text (put it in quotes) without the character NUL"


def _tool_parser(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    name = recipe.agent.tool_parser
    problem = unknown_name(name) if name.strip() else None
    if problem is not None:
        yield ("agent", "tool_parser"), f"`agent.tool_parser`: {problem}"


def _endpoints(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    context = recipe.agent.context
    for name, endpoint in recipe.endpoints.items():
        key_path: KeyPath = ("endpoints", name)
        if not isinstance(endpoint, dict) or not {"url", "model"} <= set(endpoint) <= _ENDPOINT_KEYS:
            key_names = ", ".join(sorted(_ENDPOINT_KEYS))
            yield (
                key_path,
                f"`endpoints.{name}` must be a map with url and model, and may have no keys but {key_names}",
            )
        else:
            yield from ((key_path, f"`endpoints.{name}.{text}") for text in _endpoint(endpoint))
    used: list[tuple[KeyPath, str | None]] = [(("agent", "context", "summarizer"), context.summarizer)]
    used += [(("agent", "context", "condensers"), each) for each in context.condensers]
    used += [(("reward", "judge", "models"), each) for each in recipe.reward.judge.models]
    for key, required in used:
        if required is not None and required not in recipe.endpoints:
            yield (
                key,
                f"`{'.'.join(key)}` names the endpoint {required!r}, which `endpoints` does not have."
                + suggestion(required, recipe.endpoints),
            )


def _endpoint(endpoint: dict[str, Any]) -> Iterator[str]:
    if not str(endpoint["url"]).startswith(("http://", "https://")):
        yield f"url` must begin with http:// or https://, it is {endpoint['url']!r}"
    if not isinstance(endpoint["model"], str) or not endpoint["model"].strip():
        yield f"model` must be the name of a model, it is {endpoint['model']!r}"
    seconds = endpoint.get("timeout", 1.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        yield f"timeout` must be seconds above 0, it is {seconds!r}"
    for key in ("price_in", "price_out"):
        price = endpoint.get(key, 0)
        if not _is_price(price):
            yield f"{key}` must be the price of a million tokens, not negative, it is {price!r}"
    variable = endpoint.get("key_variable")
    if variable is not None and not _VARIABLE.fullmatch(str(variable)):
        # The value is not shown, because a user may have written the key itself.
        yield "key_variable` must be the name of an environment variable that holds the key"


def _reward(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """User-defined scorers are imported only when training begins."""
    from aworld_train.recipe.reward_settings import composite_settings
    from aworld_train.reward.composite import composite_faults
    from aworld_train.reward.extraction import check_schema_name
    from aworld_train.reward.scorers import scorer_names

    reward, composite = recipe.reward, recipe.reward.composite
    for path, name in ((("scorer",), reward.scorer), (("composite", "correct"), composite.correct)):
        if name is not None and not FUNCTION_NAME.fullmatch(name) and name not in (scorers := scorer_names()):
            yield (
                ("reward", *path),
                f"`reward.{'.'.join(path)}` is {name!r}, which is none of {', '.join(scorers)}, nor "
                f"`module:function` or `file.py:function`.{suggestion(name, scorers)}",
            )
    try:
        if reward.answer_schema is not None:
            check_schema_name(reward.answer_schema)
    except RewardError as error:
        yield ("reward", "answer_schema"), f"`reward.answer_schema`: {error.message}"
    for key, fault in composite_faults(composite_settings(composite)):
        yield ("reward", "composite", key), f"`reward.composite.{key}` {fault}"


def _cluster(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    cluster = recipe.cluster
    if cluster.launcher is LauncherName.local and cluster.nodes > 1:
        yield (
            ("cluster", "nodes"),
            f"`cluster.nodes` is {cluster.nodes}, and the launcher `local` has one machine; set `cluster.launcher`",
        )
    section = ("cluster", "slurm")
    for path, value in leaves(asdict(cluster.slurm)):
        if isinstance(value, EnvText):
            yield (
                (*section, *path),
                f"`{dotted((*section, *path))}` is written into the job's script, so it takes nothing from the "
                "environment; give it on the command line, or in `setup` as the shell's own $NAME",
            )
        elif isinstance(value, str) and "\n" in value:
            yield (*section, *path), f"`{dotted((*section, *path))}` must be one line"
    for position, option in enumerate(cluster.slurm.options):
        if not option.startswith("--"):
            yield (
                (*section, "options", str(position)),
                f"`cluster.slurm.options` are sbatch's long options, such as --qos=high; {option!r} is none",
            )


def _distill(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    section, key = recipe.distill, ("distill", "teacher")
    if recipe.trainer.method is not Method.distill:
        if section.teacher is not None:
            yield key, "`distill.teacher` is used with `trainer.method: distill` only"
        return
    if section.teacher is None:
        yield (
            key,
            "`trainer.method` is distill, and `distill.teacher` is not set: a model directory, a checkpoint or the "
            "folder of a run, such as runs/quickstart",
        )
    if recipe.rollout.temperature != 1:
        yield (
            ("rollout", "temperature"),
            f"`rollout.temperature` is {recipe.rollout.temperature:g}, and a teacher's probabilities are those at 1: "
            "leave it out with `trainer.method: distill`",
        )
    if section.gpus > 1 and on_cpu(recipe):
        yield ("distill", "gpus"), "`distill.gpus` is for GPUs; leave it out on processors"


def _sizes(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if recipe.plays_episodes:
        yield from _episode_sizes(recipe)
    elif recipe.trainer.batch_size % (shares := _shares(recipe)):
        yield (
            ("trainer", "batch_size"),
            f"the {recipe.trainer.batch_size} rows of one step (`trainer.batch_size`) must be a multiple of the "
            f"{shares} ranks that share them",
        )


def _episode_sizes(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    trainer, rollout = recipe.trainer, recipe.rollout
    shares = _shares(recipe)
    minibatch = trainer.minibatch_size or trainer.batch_size
    if rollout.n < 2 and recipe.compares_rewards and recipe.algorithm.name in _GROUP_BASELINES:
        yield (
            ("rollout", "n"),
            f"{recipe.algorithm.name} compares the episodes of one task, so `rollout.n` must be at least 2",
        )
    if trainer.early_stop and not trainer.val_every:
        yield (
            ("trainer", "early_stop"),
            "`trainer.early_stop` counts validations, and `trainer.val_every` is 0: there are none between steps",
        )
    if trainer.batch_size % minibatch:
        yield (
            ("trainer", "minibatch_size"),
            f"`trainer.batch_size` ({trainer.batch_size}) must be a multiple of `trainer.minibatch_size` "
            f"({minibatch})",
        )
    elif minibatch * rollout.n % shares:
        yield (
            ("cluster", "gpus_per_node"),
            f"the {minibatch * rollout.n} episodes of one update ({minibatch} tasks of `rollout.n` "
            f"{rollout.n}) must be a multiple of the {shares} ranks that share them",
        )
    elif not trainer.dynamic_batches and (episodes := episodes_per_update(recipe)) % trainer.microbatch_size:
        yield (
            ("trainer", "microbatch_size"),
            f"the {episodes} episodes that one rank trains on per update must be a multiple of "
            f"`trainer.microbatch_size` ({trainer.microbatch_size})",
        )


def _parallel(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    trainer, ranks = recipe.trainer, recipe.cluster.ranks
    if on_cpu(recipe):
        used = {
            ("rollout", "tensor_parallel"): recipe.rollout.tensor_parallel > 1,
            ("trainer", "strategy"): trainer.strategy is Strategy.megatron,
            ("trainer", "sequence_parallel"): trainer.sequence_parallel > 1,
            ("trainer", "offload"): trainer.offload is not Offload.none,
        }
        for key in (key for key, is_used in used.items() if is_used):
            yield (
                key,
                f"`{dotted(key)}` is for GPUs; leave it out, or set `rollout.engine` to vllm and `cluster.device` to "
                "cuda",
            )
    else:
        yield from _strategy(recipe)
        for key, size in (
            (("rollout", "tensor_parallel"), recipe.rollout.tensor_parallel),
            (("trainer", "sequence_parallel"), trainer.sequence_parallel),
        ):
            if ranks % size:
                yield (
                    key,
                    f"`{dotted(key)}` ({size}) must divide the {ranks} GPUs of the run (`cluster.nodes` times "
                    "`cluster.gpus_per_node`)",
                )
    if trainer.max_batch_tokens is None:
        return
    if not trainer.dynamic_batches and recipe.plays_episodes:
        yield (
            ("trainer", "max_batch_tokens"),
            "`trainer.max_batch_tokens` is used with `trainer.dynamic_batches: true` only",
        )
    elif trainer.max_batch_tokens * trainer.ranks_per_sequence < recipe.max_episode_tokens:
        yield (
            ("trainer", "max_batch_tokens"),
            f"`trainer.max_batch_tokens` ({trainer.max_batch_tokens}) is less than the longest episode, which has "
            f"{recipe.max_episode_tokens} tokens (`dataset.max_prompt_tokens` and `rollout.max_response_tokens`)",
        )


def _strategy(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Sizes of one way to divide a model, with the other way chosen; and those of Megatron that do not go together."""
    trainer, ranks = recipe.trainer, recipe.cluster.ranks
    sizes = asdict(trainer.megatron)
    if trainer.strategy is not Strategy.megatron:
        for name in (name for name, size in sizes.items() if size > 1):
            yield (
                ("trainer", "megatron", name),
                f"`trainer.megatron.{name}` is used with `trainer.strategy: megatron` only",
            )
        return
    if trainer.sequence_parallel > 1:
        yield (
            ("trainer", "sequence_parallel"),
            "`trainer.sequence_parallel` is FSDP's; with `trainer.strategy: megatron` GPUs share a sequence by "
            "`trainer.megatron.context_parallel`",
        )
    if ranks % trainer.ranks_per_batch:
        yield (
            ("trainer", "megatron"),
            f"`trainer.megatron` divides the model among {trainer.ranks_per_batch} GPUs (tensor_parallel x "
            f"pipeline_parallel x context_parallel), which must divide the {ranks} GPUs of the run "
            "(`cluster.nodes` times `cluster.gpus_per_node`)",
        )
    elif ranks % (experts := sizes["expert_parallel"] * sizes["pipeline_parallel"]):
        yield (
            ("trainer", "megatron", "expert_parallel"),
            f"`trainer.megatron` divides the experts among {experts} GPUs (expert_parallel x pipeline_parallel), which "
            f"must divide the {ranks} GPUs of the run (`cluster.nodes` times `cluster.gpus_per_node`)",
        )


def _files(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for key in ("train", "val"):
        files = getattr(recipe.dataset, key)
        if isinstance(files, list) and not (files and all(file.strip() for file in files)):
            yield ("dataset", key), f"`dataset.{key}` must name at least one file, and none may be empty"
        elif isinstance(files, list) and len(set(files)) < len(files):
            yield ("dataset", key), f"`dataset.{key}` names a file twice"
    if recipe.model.hub is not None and recipe.model.path is None:
        yield (
            ("model", "hub"),
            "`model.hub` is for machines without the directory of `model.path`; write the name as `model.path`",
        )


def _cluster_environment(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for name, value in recipe.cluster.environment.items():
        key: KeyPath = ("cluster", "environment", name)
        if not VARIABLE.fullmatch(name):
            yield key, f"`{dotted(key)}`: an environment variable has a name of letters, digits and `_`"
        elif looks_secret(key):
            yield (
                key,
                f"`{dotted(key)}` looks like a secret, and files of the run and Ray's logs hold these variables; "
                "export it instead: the run's processes inherit the environment",
            )
        elif set_by_run(name):
            yield key, f"`{dotted(key)}` is set by the run itself; leave it out"
        elif isinstance(value, EnvText) or not isinstance(value, str) or "\0" in value:
            yield (
                key,
                f"`{dotted(key)}` must be the value itself as text (put it in quotes), without the character NUL; "
                "variables of your own environment are inherited",
            )
