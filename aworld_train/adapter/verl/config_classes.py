"""The dataclasses that verl builds from its configuration, read from its source: importing it costs seconds."""

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aworld_train.errors import TRAINING_PROFILE, DependencyMissing

_SOURCES = (
    "base_config.py",
    "trainer/config/*.py",
    "utils/profiler/config.py",
    "utils/qat/core.py",
    "utils/skip/config.py",
    "workers/config/*.py",
)
# verl sets these itself while it runs; values from a recipe would be overwritten or refused.
_RUNTIME_FIELDS = {
    *("architectures", "engine", "generation_config", "global_batch_info", "hf_config", "model_config"),
    *(
        "local_hf_config_path",
        "local_path",
        "local_tokenizer_path",
        "loss_settings",
        "processor",
        "tokenizer",
    ),
}
KINDS = {
    **{name: frozenset({name}) for name in ("int", "str", "bool")},
    "float": frozenset({"float", "int"}),
    **{name: frozenset({"list"}) for name in ("list", "List", "tuple", "set", "Iterable")},
    **{name: frozenset({"map"}) for name in ("dict", "Dict")},
}


@dataclass(frozen=True)
class FieldType:
    """The kinds of value that a field accepts (empty: any), or a map for the dataclass ``section``."""

    accepts: frozenset[str] = frozenset()
    section: str | None = None


def verl_folder() -> Path:
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise DependencyMissing(f"verl is not installed: {TRAINING_PROFILE}.")
    return Path(spec.origin).parent


@cache
def fields_of(name: str) -> dict[str, FieldType] | None:
    """The settable fields of a dataclass, inherited ones included; None for a class that is not verl's."""
    found = _classes().get(name.rpartition(".")[2])
    if found is None or ("." in name and not name.startswith("verl.")):
        return None
    bases, own = found
    inherited: dict[str, FieldType] = {}
    for base in bases:
        inherited |= fields_of(base) or {}
    return {key: kind for key, kind in (inherited | own).items() if key not in _RUNTIME_FIELDS}


@cache
def _classes() -> dict[str, tuple[list[str], dict[str, FieldType]]]:
    """The bases of each class that are verl's, and its own fields."""
    folder = verl_folder()
    trees = [ast.parse(file.read_text()) for pattern in _SOURCES for file in sorted(folder.glob(pattern))]
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in nodes}

    def named(name: str) -> FieldType:
        if name in names:
            return FieldType(frozenset({"map"}), section=name)
        return FieldType(KINDS.get(name, frozenset()))

    return {
        node.name: (
            [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in names],
            {
                item.target.id: _with_default(annotated_type(item.annotation, named), item.value)
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            },
        )
        for node in nodes
    }


def annotated_type(annotation: ast.expr, named: Callable[[str], FieldType]) -> FieldType:
    """The type that an annotation describes; ``named`` knows those that have a name, as ``int`` or a class."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either(annotated_type(left, named), annotated_type(right, named))
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _either(annotated_type(inner, named), FieldType(frozenset({"null"})))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=options)):
            values = [option.value for option in options if isinstance(option, ast.Constant)]
            return FieldType(frozenset(type(value).__name__ for value in values))
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return named(name)
        case ast.Constant(value=None):
            return FieldType(frozenset({"null"}))
    return FieldType()


def _either(one: FieldType, other: FieldType) -> FieldType:
    if not one.accepts or not other.accepts:
        return FieldType()
    return FieldType(one.accepts | other.accepts, one.section or other.section)


def _with_default(kind: FieldType, default: ast.expr | None) -> FieldType:
    """``kind`` with null added for a default of None: ``x: int = None`` accepts null despite its annotation."""
    if isinstance(default, ast.Constant) and default.value is None:
        return _either(kind, FieldType(frozenset({"null"})))
    return kind


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "list": "a list",
    "map": "a map",
    "null": "null",
}


def kind_of(value: Any) -> str:
    """int, float, str, bool, list, map or null."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def in_words(kinds: Collection[str]) -> str:
    """Kinds as a message names them; a number may be a whole one, so that is not said twice."""
    implied = {"int"} if "float" in kinds else set()
    return " or ".join(words for kind, words in _WORDS.items() if kind in kinds and kind not in implied)


def describe(value: Any) -> str:
    kind = kind_of(value)
    return _WORDS[kind] if kind in ("null", "map", "list") else repr(value)
