"""An MCP server with one tool, a calculator, on its standard input and output."""

import asyncio
from typing import Any

from arithmetic import ArithmeticFailure, calculate
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

CALCULATOR = Tool(
    name="calculator",
    description="Evaluate an arithmetic expression.",
    inputSchema={
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
)
server: Server[Any, Any] = Server("calculator")


@server.list_tools()  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
async def list_tools() -> list[Tool]:
    """The one tool."""
    return [CALCULATOR]


# One argument is checked sooner by hand: the SDK's check takes longer than all the rest of a call.
@server.call_tool(validate_input=False)  # type: ignore[untyped-decorator,unused-ignore]
async def call_tool(name: str, arguments: dict[str, Any]) -> list[TextContent]:
    """The value as text; the SDK answers an exception with isError and the exception's text."""
    if name != CALCULATOR.name:
        raise ValueError(f"Error: unknown tool {name!r}")
    if not isinstance(expression := arguments.get("expression"), str):
        raise ValueError("Error: expression has to be a text")
    try:
        return [TextContent(type="text", text=calculate(expression))]
    except ArithmeticFailure as failure:
        raise ArithmeticFailure(f"Error: {failure}") from None


async def main() -> None:
    """Serve until standard input ends."""
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
