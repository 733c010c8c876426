"""A connection in the formats that programs read."""

import json
import shlex

from aworld_train.env.connection import EnvConnection, mcp_servers_config
from aworld_train.errors import UsageError, nearest

FORMATS = ("mcp", "dotenv", "shell")


def write_config(connection: EnvConnection, form: str) -> str:
    """The connection, token included, as text without a final newline.

    ``mcp`` is the JSON that MCP clients and AWorld agents take, ``dotenv`` lines for a ``.env`` file, ``shell`` lines
    for ``eval`` in a POSIX shell.
    """
    variables = {"MCP_SERVER_URL": connection.mcp_url, "MCP_SERVER_TOKEN": connection.token}
    if form == "mcp":
        return json.dumps(mcp_servers_config(connection.mcp_url, connection.token), indent=2)
    if form == "dotenv":
        return "\n".join(f"{name}={value}" for name, value in variables.items())
    if form == "shell":
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    guess = nearest(form, FORMATS)
    hint = f" (did you mean {guess!r}?)" if guess else ""
    raise UsageError(f"There is no format {form!r}{hint}: it is {', '.join(FORMATS)}.")
