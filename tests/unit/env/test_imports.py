"""What looking at environments costs: no Docker, no MCP, no training framework is imported for it."""

import subprocess
import sys

import pytest

HEAVY = ("docker", "mcp", "ray", "torch", "transformers", "verl")


@pytest.mark.parametrize("module", ["aworld_train.env", "aworld_train.env.process", "aworld_train.cli.env"])
def test_importing_it_imports_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
