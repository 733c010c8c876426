"""The environment variables that a run sets itself, for agent programs and for training; recipes may set others."""

import re

PROVIDED = {
    *("OPENAI_API_BASE", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
    *("LLM_API_KEY", "LLM_BASE_URL", "LLM_MODEL_NAME", "LLM_PROVIDER"),
    *("MCP_SERVERS", "MCP_SERVER_TOKEN", "MCP_SERVER_URL"),
    *("AGENT_FOLDER", "AWORLD_LOG_PATH", "NO_PROXY", "TMPDIR", "no_proxy"),
}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRAINING = {
    *("AUTOSCALER_METRIC_PORT", "CUDA_VISIBLE_DEVICES", "DASHBOARD_METRIC_PORT", "HF_HUB_OFFLINE", "HOME"),
    *("LD_PRELOAD", "MASTER_ADDR", "MASTER_PORT", "PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "RANK", "TMPDIR"),
    *("TOKENIZERS_PARALLELISM", "WORLD_SIZE"),
}
_TRAINING_PREFIXES = ("AWORLD_TRAIN_", "MCP_SERVER_", "RAY_", "VERL_")


def set_by_run(name: str) -> bool:
    """Whether a run sets this variable for its training processes, or depends on how it is set."""
    return name in _TRAINING or name.startswith(_TRAINING_PREFIXES)
