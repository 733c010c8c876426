"""Tool environments: the servers whose tools an agent uses, and how to reach them.

connection = up("calculator-mcp-server", owner_pid=os.getpid())
config = mcp_servers_config(connection.mcp_url, connection.token)
down(connection.name)
"""

from aworld_train.env.backend import EnvSettings
from aworld_train.env.connection import (
    EnvConnection,
    connection_settings,
    get_agent_tool_env_and_servers,
    mcp_servers_config,
)
from aworld_train.env.health import EnvironmentCheck, check_tools, examine, health_url, probe
from aworld_train.env.lifecycle import down, down_orphans, find, orphans, up
from aworld_train.env.registry import clean_leftovers
from aworld_train.env.status import EnvStatus, status

__all__ = [
    "EnvConnection",
    "EnvSettings",
    "EnvStatus",
    "EnvironmentCheck",
    "check_tools",
    "clean_leftovers",
    "connection_settings",
    "down",
    "down_orphans",
    "examine",
    "find",
    "get_agent_tool_env_and_servers",
    "health_url",
    "mcp_servers_config",
    "orphans",
    "probe",
    "status",
    "up",
]
