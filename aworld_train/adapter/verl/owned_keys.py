"""VeRL's keys that a recipe may not set in its ``verl`` section, each with the recipe's own key or with the reason.

A raw key that changed what ``compose`` writes would leave a run that looks complete and reports something else than
what happened. A key on which nothing depends stays free.
"""

from aworld_train.adapter.verl.recipe_keys import ACTOR, MODEL, ROLLOUT, SAME_MEANING
from aworld_train.adapter.verl.worker_setup import WORKER_SETUP

_INIT = "ray_kwargs.ray_init"

_RUN_FOLDER = "it lies in the run folder, where the summary, the export and a resume look for it"
_EPISODES = "the recipe's `agent` section says who plays the episodes, which are recorded"
_MEASURED = "a validation plays each task once, and `eval` and the summary count its answers so"
_SCORES = (
    "the recipe's `reward` section says how answers are scored, and records and summary have these scores"
)
_WHOLE = (
    "a run is resumed from a checkpoint with model, optimizer and place in the data, and exported from it"
)
_PRIVATE_RAY = "a run has a Ray of its own, which only its user can reach"
_ROWS = "rows have the columns that `aworld-train dataset` writes and checks"
_FOLDER_ONLY = "the checks before a run read the tokenizer and the template in the folder of `model.path`"
_UPDATES = "an update has all rows of its episodes: `trainer.minibatch_size` says of how many tasks"
_UNREAD = "VeRL 0.9.1 reads it nowhere: ranks wait 30 minutes for each other, as torch has it"
REASONS = {
    f"{MODEL}.tokenizer_path": _FOLDER_ONLY,
    f"{MODEL}.hf_config_path": _FOLDER_ONLY,
    f"{MODEL}.custom_chat_template": f"{_FOLDER_ONLY}: put the template there, as chat_template.jinja",
    "data.tokenizer": _FOLDER_ONLY,
    "data.chat_template_func": _FOLDER_ONLY,
    "data.prompt_key": _ROWS,
    "data.reward_fn_key": _ROWS,
    "data.return_raw_chat": "agents get a task's messages, not its tokens",
    "data.val_batch_size": "all tasks of a validation are played at once, which their places in the records need",
    "data.tool_config_path": "tools come from the recipe's `env` section",
    "data.function_tool_path": "tools come from the recipe's `env` section",
    "data.filter_overlong_prompts": (
        "tasks would be left out without a word, and `eval` would count them as errors; `dataset check` names the rows "
        "that are too long"
    ),
    "data.filter_prompts": "tasks would be left out without a word, and `eval` would count them as errors",
    f"{ACTOR}.checkpoint.save_lora_only": _WHOLE,
    **{
        f"{role}.checkpoint.{key}": _WHOLE
        for role in (ACTOR, "critic")
        for key in ("save_contents", "load_contents", "async_save")
    },
    f"{ACTOR}.fsdp_config.forward_only": "the actor is what a run trains",
    f"{ACTOR}.megatron.forward_only": "the actor is what a run trains",
    "actor_rollout_ref.nccl_timeout": _UNREAD,
    "critic.nccl_timeout": _UNREAD,
    f"{ROLLOUT}.mode": "VeRL 0.9 has no other mode than async",
    f"{ROLLOUT}.data_parallel_size": "each process samples on the GPU that it trains on",
    f"{ROLLOUT}.pipeline_model_parallel_size": "each process samples on the GPU that it trains on",
    f"{ROLLOUT}.calculate_log_probs": "training rows and records have the probabilities of sampled tokens",
    f"{ROLLOUT}.logprobs_mode": "training rows and records have the probabilities with which tokens were sampled",
    f"{ROLLOUT}.ignore_eos": "a turn of an episode ends where the model ends it",
    f"{ROLLOUT}.repetition_penalty": "the trainer computes probabilities without it",
    f"{ROLLOUT}.val_kwargs": _MEASURED,
    f"{ROLLOUT}.agent": _EPISODES,
    f"{ROLLOUT}.multi_turn": f"VeRL's own agent loops read it, and {_EPISODES}",
    f"{ROLLOUT}.trace": "VeRL's current trainer does not trace; `traces/episodes.jsonl` has every episode",
    f"{ROLLOUT}.prometheus": "it opens a port without a password; `metrics.jsonl` has the metrics of each step",
    "reward": _SCORES,
    "algorithm.use_pf_ppo": "VeRL's current trainer does not read it",
    "algorithm.pf_ppo": "VeRL's current trainer does not read it",
    "transfer_queue.enable": "VeRL's current trainer always uses the queue",
    "transfer_queue.metrics": "it opens a port without a password",
    "transfer_queue.backend.storage_backend": "only the queue SimpleStorage is closed to other users of the machine",
    "transfer_queue.backend.SimpleStorage.total_storage_size": "a run with a smaller queue would wait for ever",
    "trainer.validation_data_dir": _RUN_FOLDER,
    "trainer.default_local_dir": _RUN_FOLDER,
    "trainer.default_hdfs_dir": _RUN_FOLDER,
    "trainer.del_local_ckpt_after_load": "a resumed run needs its checkpoint again if it is stopped",
    "trainer.resume_mode": "`train --resume` says whether a run continues from its checkpoints",
    "trainer.resume_from_path": "`train --resume` continues a run; another start is `model.path`",
    "trainer.val_only": "`aworld-train eval` measures a model without training",
    "trainer.use_v1": "the older trainer plays no episodes of agents",
    f"{ACTOR}.shuffle": _UPDATES,
    "critic.shuffle": _UPDATES,
    "critic.ppo_mini_batch_size": f"{_UPDATES}, and the critic has the actor's",
    "trainer.v1.sampler.max_off_policy_strategy": "episodes with a token of too old weights are left out",
    "trainer.v1.separate_async.hybrid_rollout": "the training processes do not sample beside the samplers",
    **{
        f"{ROLLOUT}.checkpoint_engine.{key}": "how weights reach the engine follows from where it runs"
        for key in ("backend", "custom_backend_module")
    },
    "trainer.v1.sampler.custom_sampler": "the sampler leaves out failed episodes, and groups below `rollout.min_group`",
    f"{_INIT}.address": f"{_PRIVATE_RAY}; `cluster.launcher` says where a run runs",
    f"{_INIT}.include_dashboard": _PRIVATE_RAY,
    f"{_INIT}.dashboard_*": _PRIVATE_RAY,
    f"{_INIT}._temp_dir": _PRIVATE_RAY,
    f"{_INIT}._node_ip_address": _PRIVATE_RAY,
    f"{_INIT}.local_mode": _PRIVATE_RAY,
    f"{_INIT}.log_to_driver": "errors of a run's processes are read in its log",
    f"{_INIT}.configure_logging": "errors of a run's processes are read in its log",
    f"{_INIT}.num_gpus": "the recipe's `cluster` section says how many there are",
    f"{_INIT}.runtime_env.worker_process_setup_hook": (
        f"{WORKER_SETUP} secures the ports of a run. A reward function or an agent can import your own code"
    ),
    f"{_INIT}.runtime_env.py_executable": "Ray's workers run with the interpreter of the run",
    f"{_INIT}.runtime_env.env_vars.VERL_FILE_LOGGER_*": "the metrics of a run are read from the file that it names",
    f"{_INIT}.runtime_env.env_vars.RAY_*": _PRIVATE_RAY,
    "skip": "recorded episodes would be those of another run",
}
"""VeRL's keys, or patterns of them, that have no counterpart in a recipe, with the reason why they cannot be set."""

OWNED_KEYS = {
    **REASONS,
    **{key: f"the recipe has a key for it, `{own}`" for key, own in SAME_MEANING.items()},
}
"""Patterns of keys that a recipe may not set, each with the reason as a part of a sentence."""

_TOKEN_ROWS = "the rows of `dataset.train` are ids and masks already"
SFT_OWNED = {
    **{
        f"data.{key}": _TOKEN_ROWS
        for key in (
            *("messages_key", "tools_key", "enable_thinking_key", "enable_thinking_default"),
            *("apply_chat_template_kwargs", "custom_cls", "pad_mode", "truncation", "max_length"),
            *("ignore_input_ids_mismatch", "use_shm", "balance_dp_token", "train_max_samples", "num_workers"),
        )
    },
    "data.use_dynamic_bsz": "passes are always filled by tokens",
    "data.micro_batch_size_per_gpu": "passes are always filled by tokens",
    "data.max_token_len_per_gpu": "the recipe has a key for it, `trainer.max_batch_tokens`",
    "trainer.balance_batch": "VeRL reads it only on Ray",
    "trainer.seed": "the recipe has a key for it, `trainer.seed`",
    "trainer.profile_interval": "the steps are not VeRL's own loop",
}
"""As ``OWNED_KEYS``, for keys that VeRL's SFT trainer has alone."""
