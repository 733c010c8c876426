"""Programs end in time with all that they started; shells and Python code say what came of them."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gaia_tools import processes, python_code, terminal
from mcp.server.fastmcp.exceptions import ToolError

from tests.conftest import call, content, text


def running(mark: str) -> list[str]:
    """The processes whose command line has that mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and mark in command and int(entry.name) != os.getpid():
            found.append(command)
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so, half a minute at most."""
    for _ in range(300):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it is not so")


async def test_what_was_printed_until_the_end_comes_back(workspace: Path) -> None:
    ended = await processes.run(["bash", "-c", "echo out; echo err >&2; exit 3"], cwd=workspace, seconds=9)
    assert (ended.exit_code, ended.output, ended.errors) == (3, "out", "err")
    both = await processes.run(
        ["bash", "-c", "echo a; echo b >&2; sleep 60"], cwd=workspace, seconds=3, merged=True
    )
    assert (both.exit_code, both.output, both.errors) == (None, "a\nb", "")


async def test_all_below_it_ends_whatever_it_did_to_get_away(workspace: Path) -> None:
    command = (
        "setsid sleep 7171 & (setsid sleep 7177 &) ; (sleep 7172 & disown) & nohup sleep 7173 >/dev/null & "
        "setsid bash -c 'setsid sleep 7174 & sleep 7175' & trap '' TERM INT HUP; sleep 7176"
    )
    ended = await processes.run(["bash", "-c", command], cwd=workspace, seconds=3)
    assert ended.exit_code is None and running("sleep 717") == []


async def test_a_cancelled_program_ends(workspace: Path) -> None:
    task = asyncio.create_task(processes.run(["sleep", "7181"], cwd=workspace, seconds=60))
    await until(lambda: running("sleep 7181") != [])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: running("sleep 7181") == [])


async def test_what_runs_on_in_the_background_may_go_on_printing(workspace: Path) -> None:
    command = "(until test -e end; do echo on; sleep 0.1; done; echo done > later) & echo started"
    ended = await processes.run(["bash", "-c", command], cwd=workspace, seconds=60)
    assert "started" in ended.output.splitlines() and ended.exit_code == 0
    (workspace / "end").touch()
    await until((workspace / "later").exists)
    assert await asyncio.to_thread((workspace / "later").read_text) == "done\n"


async def test_a_program_that_is_not_there_is_said(workspace: Path) -> None:
    with pytest.raises(ToolError, match="this environment: it has no no-such-program"):
        await processes.run(["no-such-program"], cwd=workspace, seconds=1)


async def test_a_shell_keeps_files_and_history(workspace: Path) -> None:
    result = await call(terminal.server, "execute_command", command="pwd; rm -rf x; echo format > kept")
    assert text(result).startswith(f"```\n{workspace}\n```\nexit code 0")
    assert (await content(terminal.server, "execute_command", command="cat kept; false"))["exit_code"] == 1
    late = await call(terminal.server, "execute_command", command="echo so far; sleep 60", timeout=5)
    assert late.isError and "so far" in text(late) and "ended after 5 seconds" in text(late)
    commands = (await content(terminal.server, "get_command_history", count=2))["commands"]
    assert [(one["command"], one["exit_code"]) for one in commands] == [
        ("cat kept; false", 1),
        ("echo so far; sleep 60", None),
    ]


async def python(code: str, **more: object) -> dict[str, object]:
    return await content(python_code.server, "run_python_code", code=code, **more)


async def test_python_prints_and_leaves_files(workspace: Path) -> None:
    (workspace / "mine.py").write_text("ANSWER = 42")
    (workspace / "old.txt").write_text("old")
    program = (
        "import mine, sys, pathlib\nprint(mine.ANSWER, 'ä漢')\nprint('oh', file=sys.stderr)\n"
        "pathlib.Path('new').mkdir(); pathlib.Path('new/a.txt').write_text('x')\n"
        "pathlib.Path('old.txt').write_text('changed')"
    )
    found = await python(program)
    assert (found["exit_code"], found["stdout"], found["stderr"]) == (0, "42 ä漢", "oh")
    assert found["files"] == ["new/a.txt", "old.txt"]
    result = await call(python_code.server, "run_python_code", code="x = 1")
    assert "Nothing was printed" in text(result) and "exit code 0" in text(result)
    plain = await call(python_code.server, "run_python_code", code="print(1)", output_format="text")
    assert text(plain) == "1"


@pytest.mark.parametrize("beside", ["", "os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"])
async def test_python_that_leaves_odd_names_and_deep_folders_returns_its_result(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(workspace / ".temporary"))
    (workspace / ".temporary").mkdir()
    program = (
        f"import os\n{beside}open(b'\\xff', 'w')\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    )
    try:
        found = await python(program + "\nprint('the end')")
        assert (found["exit_code"], found["stdout"]) == (0, "the end")
        assert found["files"] == ([] if beside else ["\ufffd"])
        assert (await python("print(1)"))["stdout"] == "1"
    finally:  # too deep for Python to remove
        await processes.run(["rm", "-rf", str(workspace)], cwd=workspace.parent, seconds=60)


async def test_python_that_fails_says_where() -> None:
    found = await python("a = 1\nb = [][a]")
    assert (
        found["exit_code"] == 1 and "line 2" in str(found["stderr"]) and "IndexError" in str(found["stderr"])
    )
    assert "SyntaxError" in str((await python("print("))["stderr"])
    assert (await python("import os; os.abort()"))["exit_code"] == -6
    assert (await python("raise SystemExit(7)"))["exit_code"] == 7


async def test_python_has_limits_on_time_memory_and_output() -> None:
    began = time.monotonic()
    code = (
        "import subprocess, time\nprint('so far')\nsubprocess.Popen(['sleep', '7191'], start_new_session=True)\n"
        "time.sleep(600)"
    )
    result = await call(python_code.server, "run_python_code", code=code, timeout=10)
    assert result.isError and "so far" in text(result) and "ended after 10 seconds" in text(result)
    assert time.monotonic() - began < 60 and running("sleep 7191") == []
    result = await call(python_code.server, "run_python_code", code="x = bytearray(9 << 30)")
    assert "MemoryError" in text(result) and "4096 MB" in text(result)
    found = await python("print('first'); print('x' * 3_000_000); print('last')")
    assert "first\nxxx" in str(found["stdout"]) and "xxx\nlast" in str(found["stdout"])
    assert len(str(found["stdout"])) < 25_000 and found["bytes_left_out"] > 2_900_000  # type: ignore[operator]


async def test_python_sees_no_keys_and_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-key")
    found = await python("import os; print(sorted(os.environ)); print(os.environ)")
    assert "secret-key" not in str(found["stdout"]) and "WORKSPACE" in str(found["stdout"])
    assert "EOFError" in str((await python("input()"))["stderr"])


async def test_python_code_is_not_taken_for_anything_else() -> None:
    assert (await python("print('a\"b $(ls) `ls`')"))["stdout"] == 'a"b $(ls) `ls`'
    assert (await python("import sys; print(len(sys.argv), __name__)"))["stdout"] == "1 __main__"
    assert (await python("import os; print(os.listdir())"))["stdout"] == "[]"
