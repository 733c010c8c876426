"""Commands start fast because nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

from aworld_train.cli.main import COMMANDS

HEAVY = ["docker", "mcp", "omegaconf", "ray", "torch", "transformers", "verl", "vllm"]


def imported_by(script: str, names: list[str]) -> str:
    """Which of ``names`` a fresh interpreter has imported after running ``script``."""
    ending = f"\nimport sys\nprint(sorted({set(names)!r} & set(sys.modules)), file=sys.stderr)"
    command = [sys.executable, "-c", script + ending]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stderr.splitlines()[-1]


COMMAND = """
import sys
from aworld_train.cli.main import main
sys.argv = ["aworld-train", *{!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""


def test_help_imports_nothing_heavy_and_no_command() -> None:
    commands = [command.target.split(":")[0] for command in COMMANDS]
    assert imported_by(COMMAND.format(["--help"]), [*HEAVY, *commands, "rich"]) == "[]"


def test_help_of_a_command_imports_nothing_heavy() -> None:
    assert imported_by(COMMAND.format(["train", "--help"]), HEAVY) == "[]"


@pytest.mark.parametrize(
    "command", ["reward --help", "reward score --help", "recipe check quickstart --no-files"]
)
def test_what_only_looks_at_rewards_imports_nothing_that_scores_or_asks(command: str) -> None:
    names = ["aiohttp", "httpx", "mcp", "numpy", "pandas", "pyarrow", "ray", "sympy", "torch", "transformers"]
    assert imported_by(COMMAND.format(command.split()), [*names, "verl"]) == "[]"


@pytest.mark.parametrize("package", ["recipe", "env", "dataset", "reward"])
def test_what_training_builds_on_imports_no_training_framework(package: str) -> None:
    assert imported_by(f"import aworld_train.{package}", ["torch", "ray", "verl"]) == "[]"


def test_loading_a_recipe_imports_no_training_framework() -> None:
    script = "from aworld_train import recipe\nrecipe.load({'name': 'a'})"
    assert imported_by(script, ["torch", "ray", "verl", "transformers"]) == "[]"


def test_the_recipe_package_itself_imports_no_omegaconf() -> None:
    assert imported_by("import aworld_train.recipe", ["omegaconf", "yaml"]) == "[]"


@pytest.mark.parametrize("package", ["cassette", "tool_gateway"])
def test_what_stands_between_an_agent_and_its_tools_imports_nothing_heavy(package: str) -> None:
    assert imported_by(f"import aworld_train.rollout.{package}", HEAVY) == "[]"
