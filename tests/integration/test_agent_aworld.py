"""AWorld agents and the examples, in interpreters that have what they need; and what the extra ``aworld`` installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aworld_environment import CONSTRAINTS, REPOSITORY, aworld_python, frameworks_python, run_with

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.timeout(900)
def test_aworld_agents_do_what_their_tests_say(tmp_path: Path) -> None:
    done = run_with(
        aworld_python(),
        *(*PYTEST, "tests/with_aworld", "-k", "not langgraph and not sdk"),
        timeout=600,
        # By default AWorld writes its logs into the folder that it is imported in.
        AWORLD_LOG_PATH=str(tmp_path),
    )
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.timeout(900)
def test_examples_of_other_frameworks_do_what_their_tests_say() -> None:
    done = run_with(frameworks_python(), *PYTEST, "tests/with_aworld/test_examples.py", timeout=300)
    assert "3 passed" in done.stdout


@pytest.mark.install
@pytest.mark.timeout(1800)
def test_extra_installs_beside_verl_in_a_clean_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS]
    # torch first and alone, as scripts/_setup.sh does.
    subprocess.run([*pip, "torch==2.13.0"], check=True, cwd=REPOSITORY)
    subprocess.run([*pip, f"{REPOSITORY}[cpu,aworld]"], check=True, cwd=REPOSITORY)
    checked = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    program = (
        "import aworld_train.agent.aworld_yaml as y; y._import_aworld(); import verl, mcp; print('together')"
    )
    variables = os.environ | {"AWORLD_LOG_PATH": str(tmp_path / "logs"), "AWORLD_DISABLE_CONSOLE_LOG": "true"}
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=variables, timeout=300
    )
    assert "together" in done.stdout, done.stderr
