"""Work in a process of its own ends in a result or an error, and never with the server."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from gaia_tools.isolated import isolated
from mcp.server.fastmcp.exceptions import ToolError


async def test_the_result_comes_back() -> None:
    assert await isolated(lambda a, b: {"sum": a + b, "big": "x" * 5_000_000}, 1, 2) == {
        "sum": 3,
        "big": "x" * 5_000_000,
    }


async def test_it_is_another_process_whose_output_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        subprocess.run(["echo", "not for the client"])
        return os.getpid()

    assert await isolated(work) != os.getpid()
    assert capfd.readouterr().out == ""


async def test_errors_are_said() -> None:
    def refuse() -> None:
        raise ToolError("Ask for something else.")

    def fail() -> None:
        raise KeyError("page")

    with pytest.raises(ToolError, match=r"^Ask for something else\.$"):
        await isolated(refuse)
    with pytest.raises(ToolError, match="It cannot be read: 'page'"):
        await isolated(fail)


async def test_too_long_too_large_or_crashed_is_an_error() -> None:
    def sleep() -> None:
        subprocess.run(["sleep", "77"])

    def grow() -> None:
        bytearray(1 << 40)

    def crash() -> None:
        os.abort()

    def spin() -> None:
        while True:
            pass

    began = time.monotonic()
    with pytest.raises(ToolError, match="longer than 1 seconds"):
        await isolated(sleep, seconds=1)
    with pytest.raises(ToolError, match="longer than 1 seconds"):
        await isolated(spin, seconds=1)
    assert time.monotonic() - began < 60
    with pytest.raises(ToolError, match="more than 1024 MB"):
        await isolated(grow)
    with pytest.raises(ToolError, match="crashed \\(SIGABRT\\)"):
        await isolated(crash)


async def test_what_it_started_ends_with_it() -> None:
    def work() -> int:
        return subprocess.Popen(["sleep", "78"]).pid

    _wait_until_gone(await isolated(work))


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _alive(pid):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
