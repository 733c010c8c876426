"""A second tool server, started as a command."""

import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("other", log_level="WARNING")


@server.tool()
def same_name() -> str:
    return "other"


@server.tool()
def others_key() -> str:
    return os.environ.get("OTHER_KEY", "")


if __name__ == "__main__":
    server.run()
