"""The environment variables of an agent program that the run sets; a recipe's ``agent.environment`` may set others."""

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
"""What an environment variable may be called."""
