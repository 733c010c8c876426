"""Graders of other projects, to compare scorers with: single functions, taken out of their files.

Nothing else of theirs is imported, which would need all that they depend on.
"""

import ast
import importlib.util
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


def load_functions(file: Path, names: Collection[str], **namespace: Any) -> dict[str, Any]:
    """The functions of these names, at any depth; what they use from outside is in the namespace."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions: list[ast.stmt] = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    exec(compile(ast.Module(functions, []), str(file), "exec"), namespace)
    assert set(names) <= set(namespace), f"{file} has no {set(names) - set(namespace)}"
    return namespace


def installed_file(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported; the test is skipped where it is missing, but not in CI."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        assert not os.environ.get("CI"), f"{package} is not installed"
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]) / path
