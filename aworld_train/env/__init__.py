"""Tool environments: the servers whose tools an agent uses, and how to reach them.

connection = up("calculator-mcp-server", owner_pid=os.getpid())
config = mcp_servers_config(connection.mcp_url, connection.token)
down(connection.name)
"""

from aworld_train.env.backend import EnvSettings as EnvSettings
from aworld_train.env.connection import EnvConnection as EnvConnection
from aworld_train.env.connection import connection_settings as connection_settings
from aworld_train.env.connection import get_agent_tool_env_and_servers as get_agent_tool_env_and_servers
from aworld_train.env.connection import mcp_servers_config as mcp_servers_config
from aworld_train.env.health import EnvironmentCheck as EnvironmentCheck
from aworld_train.env.health import examine as examine
from aworld_train.env.health import health_url as health_url
from aworld_train.env.health import probe as probe
from aworld_train.env.lifecycle import down as down
from aworld_train.env.lifecycle import down_orphans as down_orphans
from aworld_train.env.lifecycle import find as find
from aworld_train.env.lifecycle import orphans as orphans
from aworld_train.env.lifecycle import up as up
from aworld_train.env.registry import clean_leftovers as clean_leftovers
from aworld_train.env.status import EnvStatus as EnvStatus
from aworld_train.env.status import status as status
