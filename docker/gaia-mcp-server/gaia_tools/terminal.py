"""terminal-server: a shell in the session's workspace; what a command may do, the session's own machine decides."""

import os
from collections import deque
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import processes
from gaia_tools.files import workspace
from gaia_tools.results import OutputFormat, answer

server = FastMCP("terminal-server", log_level="WARNING")
_MAX_SECONDS = 600
_history: deque[dict[str, Any]] = deque(maxlen=1000)


@server.tool()
async def execute_command(
    command: Annotated[str, Field(description="Shell command (bash), run in the workspace.")],
    timeout: Annotated[
        int, Field(description="Seconds it may take, 600 at most.", ge=1, le=_MAX_SECONDS)
    ] = 30,
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
) -> CallToolResult:
    """Run a shell command and return what it printed and its exit code. Files stay until the session ends."""
    ended = await processes.run(
        ["bash", "-c", command],
        cwd=workspace(),
        seconds=timeout,
        env=processes.with_own_python({**processes.LIBRARY_VARIABLES, **os.environ}),
        merged=True,
    )
    result = {
        "command": command,
        "exit_code": ended.exit_code,
        "timed_out": ended.exit_code is None,
        "seconds": ended.seconds,
        "output": ended.output,
        "characters_left_out": ended.left_out,
    }
    _history.append({name: result[name] for name in ("command", "exit_code", "seconds")})
    ending = (
        f"ended after {timeout} seconds, its time limit"
        if ended.exit_code is None
        else f"exit code {ended.exit_code}"
    )
    text = (
        ended.output if output_format == "text" else f"```\n{ended.output}\n```\n{ending}, {ended.seconds} s"
    )
    found = answer(text, result, output_format)
    found.isError = ended.exit_code is None
    return found


@server.tool()
async def get_command_history(
    count: Annotated[int, Field(description="How many, from the last.", ge=1, le=1000)] = 10,
) -> CallToolResult:
    """The commands of this session with their exit codes, the last one last."""
    commands = list(_history)[-count:]
    lines = [f"{one['exit_code']}\t{one['command']}" for one in commands]
    return answer("\n".join(lines) or "No command has been run.", {"commands": commands})
