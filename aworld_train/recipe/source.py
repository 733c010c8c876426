"""Reads recipe text into plain data and records the line of each key, from PyYAML's node tree.

A key that is written twice is an error: YAML forbids it, and most readers silently use the last one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from aworld_train.errors import RecipeError
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.tree import KeyPath

_OWN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp")}
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN))$"
)


class RecipeLoader(yaml.SafeLoader):
    """YAML 1.1 that reads numbers and words as YAML 1.2 does.

    ``1e-6`` is a number; ``010``, ``1:30``, dates, ``on`` and ``off`` are text, ``true`` and ``false`` truth values.
    """


RecipeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OWN_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


@dataclass(frozen=True)
class Layer:
    """Values from one source, to be merged over others; ``lines`` has the line of each key of a file."""

    data: dict[str, Any]
    name: str = ""
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def at(self, path: KeyPath) -> str:
        """The place of the key at ``path``, such as ``gsm8k.yaml:12``; empty for a source without a name."""
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name

    def line(self, path: KeyPath) -> int:
        """The line of the key at ``path``, or of the section around it; 0 if neither is there."""
        return next(
            (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), 0
        )


def read_file(path: Path, name: str) -> Layer:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise RecipeError(f"cannot read the recipe {name}: {reason}") from error
    lines: dict[KeyPath, int] = {}
    try:
        loader = RecipeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _place_keys(node, (), (), lines)
        data = None if node is None else loader.construct_document(node)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RecipeError(f"{name}:{line}: not YAML: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise RecipeError(f"{name}:{line}: {_yaml_problem(error)}") from error
    if data is None:
        raise RecipeError(f"{name} is empty: a recipe has at least one key, such as `name: my-run`")
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "one value"
        raise RecipeError(
            f"{name}:1: a recipe is a map of keys, this is {kind}; write `key: value` on each line"
        )
    return Layer(data, name, lines)


def from_mapping(source: Mapping[str, Any]) -> Layer:
    """The recipe in a Python mapping or an OmegaConf node, interpolations unresolved."""
    plain = OmegaConf.to_container(source, resolve=False) if OmegaConf.is_config(source) else source
    return Layer(_plain(plain))


def parse_value(text: str) -> Any:
    """The YAML value on the right-hand side of ``key=value``; ValueError if it is not YAML."""
    try:
        return yaml.load(text, Loader=RecipeLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise ValueError(str(problem)) from error


_REMEDIES = {
    "'\\t'": "indent with spaces, not with tabs",
    "mapping values are not allowed": "is it indented like its neighbours? Text with a colon needs quotes",
    "another document": "a recipe is one document, without a line `---` in it",
    "could not determine a constructor": "tags, such as !!python, are not taken; write the value itself",
    "expected ',' or": "a list or map in brackets before it is not closed",
}
"""What to do, by a part of what PyYAML says."""


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "not YAML"
    remedy = next((text for part, text in _REMEDIES.items() if part in problem), None)
    return f"{problem} ({remedy})" if remedy else problem


def _place_keys(
    node: yaml.Node, path: KeyPath, ancestors: tuple[int, ...], lines: dict[KeyPath, int]
) -> None:
    """Record the line of every key below ``node``; refuse loops, and keys that repeat or are not text."""
    if id(node) in ancestors:
        raise yaml.MarkedYAMLError(problem="an alias refers to itself", problem_mark=node.start_mark)
    inside = (*ancestors, id(node))
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _place_keys(item, (*path, str(position)), inside, lines)
    elif isinstance(node, yaml.MappingNode):
        key_lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    _place_keys(merged, path, inside, lines)
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:str":
                problem = f"the key `{key.value}` is not text; put it in quotes"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in key_lines:
                problem = (
                    f"`{'.'.join((*path, key.value))}` is written twice, first on line {key_lines[key.value]}"
                )
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            key_lines[key.value] = line
            lines[(*path, key.value)] = line
            _place_keys(value, (*path, key.value), inside, lines)


def _plain(value: Any) -> Any:
    """``value`` in the form of parsed YAML: dictionaries with text keys, lists, scalars."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise RecipeError(f"the key {key!r} of a recipe is not text")
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, EnvText):
        return value.reference
    return str(value) if isinstance(value, Path) else value
