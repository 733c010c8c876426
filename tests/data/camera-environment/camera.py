"""An MCP server with one tool, which returns a picture of 84 x 84 pixels and a line of text."""

import asyncio
import base64
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import ImageContent, TextContent, Tool

PICTURE = Path(__file__).with_name("picture.png")
LOOK = Tool(
    name="look",
    description="Take a picture.",
    inputSchema={"type": "object", "properties": {}, "required": []},
)
server: Server[Any, Any] = Server("camera")


@server.list_tools()  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
async def list_tools() -> list[Tool]:
    return [LOOK]


@server.call_tool()  # type: ignore[untyped-decorator,unused-ignore]
async def call_tool(name: str, arguments: dict[str, Any]) -> list[ImageContent | TextContent]:
    return [
        ImageContent(
            type="image", data=base64.b64encode(PICTURE.read_bytes()).decode(), mimeType="image/png"
        ),
        TextContent(type="text", text="taken"),
    ]


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
