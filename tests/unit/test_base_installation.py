"""Every command of the base installation runs where only the base dependencies are, or says what it needs."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from aworld_train import dataset

BLOCKED = """
import sys
from importlib.machinery import PathFinder

class BaseFinder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = BaseFinder
from aworld_train.cli.main import main
sys.argv = ["aworld-train", *{arguments!r}]
main()
"""


def base_distributions() -> set[str]:
    """The distributions that an installation without extras has, by their normalised names."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [("aworld-train", frozenset())]
    while waiting:
        name, extras = waiting.pop()
        found.add(normalised(name))
        for requirement in map(Requirement, metadata.requires(name) or ()):
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))
            if applies and normalised(requirement.name) not in found:
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def blocked() -> set[str]:
    """The modules that only extras bring."""
    base = base_distributions()
    names = {
        module
        for module, distributions in metadata.packages_distributions().items()
        if not base & {normalised(each) for each in distributions}
    }
    assert {"torch", "ray", "verl", "transformers", "huggingface_hub"} <= names
    return names - {"_virtualenv"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    dataset.build("arithmetic", folder / "data", limit=40)
    (folder / "recipe.yaml").write_text(
        "name: base\nmodel: {path: Qwen/Qwen3-0.6B}\nenv: {backend: none}\n"
        "dataset: {train: data/train.parquet, val: data/val.parquet}\n"
    )
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "recipe list",
        "recipe show recipe.yaml",
        "recipe check recipe.yaml",
        "recipe check recipe.yaml --for eval",
        "recipe schema",
        "dataset build arithmetic --out more --limit 20",
        "dataset check data/train.parquet",
        "dataset show data/train.parquet",
        "doctor recipe.yaml --help",
        "env list",
        "env status",
        "eval recipe.yaml --agent oracle --quiet",
        "model tiny --out model",
        "runs list",
        "runs clean",
    ],
)
def test_a_command_runs_without_the_extras(folder: Path, blocked: set[str], command: str) -> None:
    done = run(folder, blocked, command)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "rollout recipe.yaml",
        "train recipe.yaml",
        "train recipe.yaml --dry-run",
        "recipe show recipe.yaml --composed",
    ],
)
def test_what_needs_more_says_which_extra(folder: Path, blocked: set[str], command: str) -> None:
    done = run(folder, blocked, command)
    assert done.returncode == 1
    assert "not installed" in done.stderr and "pip install 'aworld-train[cpu]'" in done.stderr
    assert "No module named" not in done.stderr


def run(folder: Path, blocked: set[str], command: str) -> "subprocess.CompletedProcess[str]":
    script = BLOCKED.format(blocked=blocked, arguments=command.split())
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=120
    )
