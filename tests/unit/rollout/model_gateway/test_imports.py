"""The gateway knows HTTP and messages, and nothing of models, tools or training."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aworld_train.rollout.model_gateway

FILES = sorted(Path(aworld_train.rollout.model_gateway.__file__).parent.glob("*.py"))
ALLOWED = (
    *(f"aworld_train.episode.{name}" for name in ("images", "message", "tool_calls")),
    *(f"aworld_train.rollout.{name}" for name in ("messages", "response_constraints")),
    "aworld_train.whole_text",
)
HEAVY = ("anthropic", "httpx", "mcp", "openai", "pydantic", "ray", "torch", "transformers", "verl")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_imports_aiohttp_msgspec_messages_and_itself(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            names = [node.module]
        for name in names:
            assert (
                name.partition(".")[0] in sys.stdlib_module_names | {"aiohttp", "msgspec"}
                or name in ALLOWED
                or name.startswith("aworld_train.rollout.model_gateway")
            ), name


def test_importing_it_imports_nothing_heavy() -> None:
    program = f"import sys, aworld_train.rollout.model_gateway; print([one for one in {HEAVY!r} if one in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
