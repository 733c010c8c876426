"""What the tests call is written down where ``GAIA_TOOLS_CALLS`` names a file: the README's table is made of it.

One JSON object a line: server, tool, seconds, whether it succeeded, what it was given (kinds of files, addresses, a
model), and the test.
"""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult

VARIABLE = "GAIA_TOOLS_CALLS"
_SUFFIX = re.compile(r"[^\s/]\.([a-z][a-z0-9]{0,4})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_SERVICE = re.compile(r"(?!\w+_LLM_)\w+_BASE_URL")


def record(file: Path) -> None:
    """From now on, write every call of a tool down, by whatever way it comes to its server."""
    original = FastMCP.call_tool

    async def call_tool(self: FastMCP, name: str, arguments: dict[str, Any]) -> Any:
        began, succeeded = time.monotonic(), False
        try:
            result = await original(self, name, arguments)
            succeeded = not (isinstance(result, CallToolResult) and result.isError)
            return result
        finally:
            line = {
                "server": self.name,
                "tool": name,
                "seconds": round(time.monotonic() - began, 4),
                "succeeded": succeeded,
                "with": given(arguments),
                "test": os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0],
            }
            with file.open("a", encoding="utf-8") as written:
                written.write(json.dumps(line) + "\n")

    FastMCP.call_tool = call_tool  # type: ignore[method-assign]


def given(arguments: dict[str, Any]) -> list[str]:
    """The kinds of what a call is about: ``.xlsx``, ``HTTP``, ``model``."""
    found = set()
    for value in arguments.values():
        if isinstance(value, str) and _ADDRESS.match(value):
            found.add("HTTP")
        elif isinstance(value, str) and (suffix := _SUFFIX.fullmatch(Path(value).name[-6:])):
            found.add(f".{suffix[1].lower()}")
    if any(_SERVICE.fullmatch(name) for name in os.environ):
        found.add("HTTP")
    if any(name.endswith("_LLM_BASE_URL") for name in os.environ):
        found.add("model")
    return sorted(found)
