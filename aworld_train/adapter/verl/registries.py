"""The names that VeRL knows for its algorithms and back ends, read from its source without importing it.

VeRL looks most names up when a step first needs them, minutes after the start, and imports torch to know them.
"""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aworld_train.adapter.verl.config_classes import verl_folder


@cache
def registered(files: str, function: str) -> frozenset[str]:
    """The names in calls of ``function``, such as ``Registry.register``, in the files of a pattern below VeRL's folder.

    A member of an enumeration in the same file stands for its value; keywords ``backend`` and ``names`` have names too.
    """
    names: set[str] = set()
    for tree in _trees(files):
        members = _members(tree)
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != function:
                continue
            named = [key.value for key in call.keywords if key.arg in ("backend", "names")]
            for argument in (*call.args[:1], *named):
                member = members.get(ast.unparse(argument)) if isinstance(argument, ast.Attribute) else None
                names |= {member} if member else set(_texts(argument))
    return frozenset(names)


@cache
def compared(file: str, scope: str, subject: str) -> frozenset[str]:
    """The names with which ``subject`` is compared in a function or class, but for those that lead to an error."""
    names, refused = set[str](), set[str]()
    for node in ast.walk(_scope(file, scope)):
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == subject:
            names.update(_texts(node.comparators[0]))
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            refused.update(_texts(node.test))
    return frozenset(names - refused)


@cache
def listed(file: str, name: str) -> frozenset[str]:
    """The texts in what is first assigned to ``name``."""
    for tree in _trees(file):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
                return frozenset(_texts(node.value))
    return frozenset()


@cache
def torch_optimizers() -> frozenset[str]:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return frozenset()
    tree = ast.parse((Path(spec.origin).parent / "optim" / "__init__.py").read_text(encoding="utf-8"))
    return frozenset(
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name[:1].isupper() and alias.name != "Optimizer"  # the base of all
    )


def _trees(files: str) -> list[ast.Module]:
    return [_parsed(path) for path in sorted(verl_folder().glob(files))]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _scope(file: str, name: str) -> ast.AST:
    for tree in _trees(file):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                return node
    return ast.Module([], [])


def _members(tree: ast.Module) -> dict[str, str]:
    """The members of the enumerations in a file with their values: ``{"Estimator.GRPO": "grpo"}``."""
    return {
        f"{owner.name}.{node.targets[0].id}": node.value.value
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _texts(node: ast.AST) -> Iterator[str]:
    return (
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
