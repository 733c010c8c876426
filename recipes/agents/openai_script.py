"""An agent in sixty lines of Python, as a program: `agent: {command: [python, recipes/agents/openai_script.py]}`.

It needs the packages openai and mcp (below version 2). The task comes as JSON on stdin; where the model and the tools
are stands in environment variables; the last line printed is the answer.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from openai import AsyncOpenAI

MAX_TURNS = 8


async def answer(messages: list[dict[str, Any]]) -> str:
    """Ask the model, call what it asks for, and so on, until it answers."""
    # The trainer decides whether something is tried again.
    async with AsyncOpenAI(max_retries=0) as model, tool_session() as tools:
        listed = (await tools.list_tools()).tools
        offered = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description or "", "parameters": t.inputSchema},
            }
            for t in listed
        ]
        for _ in range(MAX_TURNS):
            completion = await model.chat.completions.create(
                model=os.environ["OPENAI_MODEL"], messages=messages, tools=offered
            )
            said = completion.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                return said.content or ""
            for call in said.tool_calls:
                result = await called(tools, call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return messages[-1].get("content", "")


async def called(tools: ClientSession, name: str, arguments: str) -> str:
    """What a tool answers; what is wrong with a call is told to the model."""
    try:
        result = await tools.call_tool(name, json.loads(arguments or "{}"))
    except ValueError as error:
        return f"Error: the arguments are no JSON: {error}"
    return "\n".join(part.text for part in result.content if part.type == "text")


@asynccontextmanager
async def tool_session() -> AsyncIterator[ClientSession]:
    """A session with the tools of the episode."""
    headers = {"Authorization": f"Bearer {os.environ['MCP_SERVER_TOKEN']}"}
    if servers := os.environ.get("MCP_SERVERS"):
        headers["MCP_SERVERS"] = servers
    async with (
        streamablehttp_client(os.environ["MCP_SERVER_URL"], headers=headers) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


if __name__ == "__main__":
    task = json.load(sys.stdin)
    sys.stdout.write(asyncio.run(answer(task["messages"])).replace("\n", " ") + "\n")
