"""The environment variables that a run sets for an agent program; ``agent.environment`` may set only others."""

import re

PROVIDED = frozenset(
    {
        "AGENT_FOLDER",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "AWORLD_LOG_PATH",
        "LLM_API_KEY",
        "LLM_BASE_URL",
        "LLM_MODEL_NAME",
        "LLM_PROVIDER",
        "MCP_SERVERS",
        "MCP_SERVER_TOKEN",
        "MCP_SERVER_URL",
        "NO_PROXY",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "no_proxy",
    }
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The form of an environment variable's name."""
