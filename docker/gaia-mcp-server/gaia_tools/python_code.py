"""python-server: Python code, each time in a new process in the session's workspace.

The interpreter is the one of the tools, with the libraries that they use beside those of the extra ``python-server`` in
``pyproject.toml``. The process has limits on time and memory, and of this one's variables only those that say where
things are.
"""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import processes, upstream
from gaia_tools.files import attachments, workspace
from gaia_tools.results import OutputFormat, answer

server = FastMCP("python-server", log_level="WARNING")
_MAX_SECONDS = 600
_MEGABYTES = 4096
_KEPT = 24_000
_MAX_LOOKED_AT = 20_000
_MAX_LISTED = 50
# As they are imported. The description is for choosing a library, so it has none that only other libraries use.
LIBRARIES = (
    *("numpy", "pandas", "scipy", "sympy", "sklearn", "networkx", "matplotlib", "seaborn"),
    *("PIL", "cv2", "mutagen", "pydub"),
    *("openpyxl", "xlrd", "docx", "pptx", "pypdf", "pdfplumber", "yaml", "tabulate"),
    *("requests", "bs4", "lxml"),
    *("Bio", "chess", "geopy", "pint", "dateutil", "pytz"),
)
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "DISPLAY", "LD_LIBRARY_PATH")


def _description() -> str:
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    return (
        "Run Python code in a new process and return what it printed, its exit code, and the files it made or changed."
        "\n\nIt runs in the workspace, where files stay until the session ends; variables do not stay from call to "
        f"call. Installed beside the standard library: {', '.join(installed)}."
    )


@server.tool(description=_description())
async def run_python_code(
    code: Annotated[str, Field(description="A whole program; print what you want to see.")],
    timeout: Annotated[
        int, Field(description="Seconds it may take, 600 at most.", ge=1, le=_MAX_SECONDS)
    ] = 60,
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
) -> CallToolResult:
    """Run a program; the tool's description is `_description`."""
    before = _files()
    folder = tempfile.mkdtemp(prefix="python-")
    try:
        program = _written(code, Path(folder, "program.py"))
        ended = await processes.run(
            [sys.executable, "-u", "-B", str(program)],
            cwd=workspace(),
            seconds=timeout,
            env=_variables(),
            megabytes=_MEGABYTES,
            keep=_KEPT,
        )
    finally:
        with contextlib.suppress(RecursionError):  # the program may have made anything beside itself
            shutil.rmtree(folder, ignore_errors=True)
    changed = sorted(name for name, state in _files().items() if before.get(name) != state)
    result: dict[str, Any] = {
        "exit_code": ended.exit_code,
        "timed_out": ended.exit_code is None,
        "seconds": ended.seconds,
        "stdout": ended.output,
        "stderr": ended.errors,
        "bytes_left_out": ended.left_out,
        "files": changed[:_MAX_LISTED],
        "files_not_listed": max(len(changed) - _MAX_LISTED, 0),
    }
    found = answer(_as_text(result, timeout, output_format), result, output_format)
    found.isError = ended.exit_code is None
    return found


def _written(code: str, path: Path) -> Path:
    path.write_text(code, encoding="utf-8", errors="replace")
    return path


def _variables() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in (*_PASSED_ON, *upstream.VARIABLES) if name in os.environ}
    return {
        "LANG": "C.UTF-8",
        **processes.LIBRARY_VARIABLES,
        **processes.with_own_python(passed_on),
        "HOME": str(workspace()),
        "WORKSPACE": str(workspace()),
        "ATTACHMENTS": str(attachments()),
        "PYTHONPATH": str(workspace()),  # modules that were written there
        "PYTHONUTF8": "1",
        "MPLBACKEND": "Agg",
    }


def _files() -> dict[str, tuple[int, int]]:
    """What each file in the workspace is like, by its name as text; not by `os.walk`, which recurses in Python 3.11."""
    found: dict[str, tuple[int, int]] = {}
    root = str(workspace())
    folders = [root]
    while folders and len(found) <= _MAX_LOOKED_AT:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    name = os.fsencode(entry.path[len(root) + 1 :]).decode(errors="replace")
                    found[name] = state.st_mtime_ns, state.st_size
                elif not entry.name.startswith(".") and entry.name != "__pycache__":
                    folders.append(entry.path)
    return found


def _as_text(result: dict[str, Any], timeout: int, output_format: OutputFormat) -> str:
    printed, errors, code = result["stdout"], result["stderr"], result["exit_code"]
    if output_format == "text":
        return "\n".join(str(part) for part in (printed, errors) if part)
    parts = [f"```\n{printed}\n```" if printed else "Nothing was printed: use print(...)."]
    if errors:
        parts.append(f"Standard error:\n```\n{errors}\n```")
    if files := result["files"]:
        more = f", and {result['files_not_listed']} more" if result["files_not_listed"] else ""
        parts.append(f"Files made or changed: {', '.join(files)}{more}")
    ending = f"exit code {code}" if code is not None else f"ended after {timeout} seconds, its time limit"
    if isinstance(code, int) and "MemoryError" in str(errors):
        ending += f" (it may use {_MEGABYTES} MB of memory)"
    return "\n".join([*parts, f"{ending}, {result['seconds']} s"])
