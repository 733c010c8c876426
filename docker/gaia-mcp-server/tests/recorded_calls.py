"""What the tests call is written down where ``GAIA_TOOLS_CALLS`` names a file: the README's table is made of it.

One JSON object a line: server, tool, seconds, whether it succeeded, what it was given (kinds of files, addresses, a
model), and the test.
"""

import json
import os
import re
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gaia_tools import llm
from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult

VARIABLE = "GAIA_TOOLS_CALLS"
_ENDING = re.compile(r"\.[a-z0-9]{1,5}", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_SERVICE = re.compile(r"(?!\w+_LLM_)\w+_BASE_URL")
_asked: ContextVar[set[str]] = ContextVar("asked")


def record(file: Path) -> None:
    """From now on, write every call of a tool down, by whatever way it comes to its server."""
    call, ask = FastMCP.call_tool, llm._request

    async def call_tool(self: FastMCP, name: str, arguments: dict[str, Any]) -> Any:
        began, succeeded, kinds = time.monotonic(), False, given(arguments)
        _asked.set(kinds)
        try:
            result = await call(self, name, arguments)
            succeeded = not (isinstance(result, CallToolResult) and result.isError)
            return result
        finally:
            line = {
                "server": self.name,
                "tool": name,
                "seconds": round(time.monotonic() - began, 4),
                "succeeded": succeeded,
                "with": sorted(kinds),
                "test": os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0],
            }
            with file.open("a", encoding="utf-8") as written:
                written.write(json.dumps(line) + "\n")

    async def asked(*arguments: Any) -> Any:
        _asked.get(set()).add("model")
        return await ask(*arguments)

    FastMCP.call_tool = call_tool  # type: ignore[method-assign]
    llm._request = asked


def given(arguments: dict[str, Any]) -> set[str]:
    """The kinds of what a call is about: ``.xlsx``, ``HTTP``."""
    found = set()
    for name, value in arguments.items():
        if isinstance(value, str) and _ADDRESS.match(value):
            found.add("HTTP")
        elif isinstance(value, str) and name.endswith(("_path", "_url")):
            found |= {ending.lower() for ending in [Path(value).suffix] if _ENDING.fullmatch(ending)}
    return found | {"HTTP" for name in os.environ if _SERVICE.fullmatch(name)}
