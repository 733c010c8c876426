"""A tool that takes as long as it is told."""

import asyncio

from mcp.server.fastmcp import FastMCP

server = FastMCP("slow", log_level="WARNING")


@server.tool()
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


server.run("stdio")
