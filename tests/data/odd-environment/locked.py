"""A tool server that needs a key."""

import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("locked", log_level="WARNING")


@server.tool()
def locked_key() -> str:
    return os.environ["LOCKED_KEY"]


@server.tool()
def locked_pid() -> int:
    return os.getpid()
