"""The tests that gaia-mcp-server brings along, run by the interpreter that its servers have as processes."""

import fcntl
import hashlib
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from aworld_train.env.directory import find_directory
from aworld_train.env.interpreter import find_interpreter
from tests.properties import TRY_ALL

DIRECTORY = find_directory("gaia-mcp-server")
_SECONDS = 3000


def with_test_packages(python: Path) -> Path:
    """The interpreter, once it has what the directory's tests need beside its servers."""
    project = DIRECTORY.path / "pyproject.toml"
    wanted = tomllib.loads(project.read_text(encoding="utf-8"))["dependency-groups"]["tests"]
    folder = python.parent.parent
    done = folder / f"tests-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]}"
    with Path(f"{folder}.tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
            locked = ["-c", str(DIRECTORY.path / "requirements.txt")]
            subprocess.run([*command, *locked, *wanted], check=True, timeout=_SECONDS)
            done.touch()
    return python


@pytest.mark.timeout(2 * _SECONDS)
def test_the_tools_pass_their_own_tests(tmp_path: Path) -> None:
    python = with_test_packages(Path(find_interpreter(DIRECTORY, print)))
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    all_files = {"GAIA_TOOLS_TESTS_TRY_ALL": "1"} if TRY_ALL in os.environ else {}
    # The browser's wait most of the time, so they run beside the others.
    parts = {"browser": ["tests/test_browser.py"], "others": ["tests", "--ignore", "tests/test_browser.py"]}
    running = {}
    for part, chosen in parts.items():
        with (tmp_path / part).open("wb") as output:
            running[part] = subprocess.Popen(
                [*command, *chosen],
                cwd=DIRECTORY.path,
                env={**os.environ, **all_files},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
    try:
        failed = [part for part, process in running.items() if process.wait(_SECONDS) != 0]
    finally:
        for process in running.values():
            process.kill()
    assert not failed, "\n".join((tmp_path / part).read_text()[-20_000:] for part in failed)
