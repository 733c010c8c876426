"""A tool server that does what an agent's code may do: leave things behind, hang, die, write too much."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents

server = FastMCP("odd", log_level="WARNING")
WORKSPACE = Path(os.environ["WORKSPACE"])


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
def same_name() -> str:
    return "odd"


@server.tool()
def write(path: str, text: str) -> str:
    (WORKSPACE / path).write_text(text)
    return "written"


@server.tool()
def shell(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=WORKSPACE, timeout=60)
    return done.stdout + done.stderr


@server.tool()
def run_python_code(code: str) -> str:
    command = [sys.executable, "-c", "import sys; exec(sys.stdin.read())"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, cwd=WORKSPACE, timeout=60)
    return done.stdout + done.stderr


@server.tool()
def leave_behind(mark: str) -> str:
    """Files in all places, closed folders, a process that left its session, a changed environment."""
    for folder in (WORKSPACE, Path(os.environ["HOME"]), Path(os.environ.get("TMPDIR", "/tmp"))):
        (folder / f".{mark}").write_text(mark)
        closed = folder / f"closed-{mark}"
        closed.mkdir()
        (closed / "file").write_text(mark)
        closed.chmod(0)
    os.environ[f"LEFT_{mark}"] = mark
    subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(3600)  # {mark}"], start_new_session=True
    )
    return "left"


@server.tool()
def what_is_here() -> dict[str, list[str]]:
    """Everything that a session before might have left."""
    folders = [WORKSPACE, Path(os.environ["HOME"]), Path(os.environ.get("TMPDIR", "/tmp")), Path("/dev/shm")]
    files = [str(path) for folder in folders if "HIDE" not in str(folder) for path in folder.rglob("*")]
    commands = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return {"files": files, "commands": commands, "variables": sorted(os.environ)}


@server.tool()
def variable(name: str) -> str:
    return os.environ.get(name, "")


@server.tool()
async def wait(seconds: float, context: Context) -> str:
    """Says how far it is, and leaves a note when it is cancelled."""
    try:
        for step in range(10):
            await context.report_progress(step, 10)
            await asyncio.sleep(seconds / 10)
    except asyncio.CancelledError:
        (WORKSPACE / "cancelled").touch()
        raise
    return "waited"


@server.tool()
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@server.tool()
def hang(seconds: float) -> str:
    """Answers nothing else meanwhile, not even a ping."""
    time.sleep(seconds)
    return "hung"


@server.tool()
def flood(megabytes: int) -> str:
    """Writes to where the protocol is spoken."""
    for _ in range(megabytes):
        os.write(1, b"x" * (1 << 20))
    return "flooded"


@server.tool()
def forge(line: str, times: int = 1) -> str:
    """Writes a line of the protocol in place of the answer to every request that may be open: ID is its number."""
    for number in list(range(1, 600)) * times:
        os.write(1, line.replace("ID", str(number)).encode("latin-1") + b"\n")
    return "forged"


@server.tool()
def crash() -> str:
    os._exit(3)


@server.tool()
def fork(processes: int) -> int:
    """How many processes could be made."""
    made = 0
    for _ in range(processes):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            time.sleep(3600)
            os._exit(0)
        made += 1
    return made


@server.tool()
def fill() -> int:
    """Write until there is no room; how many megabytes that were."""
    written = 0
    with contextlib.suppress(OSError), (WORKSPACE / "big").open("wb") as file:
        for _ in range(100_000):
            file.write(bytes(1 << 20))
            file.flush()
            written += 1
    return written


@server.tool()
def connect(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=2):
            return "connected"
    except OSError as error:
        return f"refused: {error}"


@server.tool()
def read_file(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError as error:
        return f"refused: {error}"


@server.tool()
def fails() -> str:
    raise ValueError("on purpose")


@server.tool()
def many_kinds() -> list[TextContent | ImageContent | EmbeddedResource]:
    resource = TextResourceContents(uri="odd://embedded", mimeType="text/plain", text="embedded")
    return [
        TextContent(type="text", text="é\u2028漢"),
        ImageContent(type="image", data="AAAA", mimeType="image/png"),
        EmbeddedResource(type="resource", resource=resource),
    ]


@server.resource("odd://page")
def page() -> str:
    return "a page"


if __name__ == "__main__":
    server.run()
