"""The JSON Schema of recipes, with which editors complete and check recipes.

Pydantic's schema of the same dataclasses has neither the help texts nor the interpolations that every value may be.
"""

from dataclasses import MISSING, Field, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from aworld_train.recipe.keys import DEFAULT_FRAMEWORK, RAW, is_section, key_of, types_of
from aworld_train.recipe.schema import Recipe

_INTERPOLATION = {"type": "string", "pattern": r"\$\{.+\}"}
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe file; every value may also be text with an interpolation."""
    schema = _section(Recipe)
    # A recipe file uses the framework's name for this section.
    schema["properties"][DEFAULT_FRAMEWORK] = schema["properties"].pop(RAW)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "aworld-train recipe",
        "description": "One training job: which model, agent, tools, tasks and reward.",
        **schema,
    }


def _section(section: type) -> dict[str, Any]:
    hints = types_of(section)
    properties = {name: _key(field, hints[name]) for field in fields(section) for name in [key_of(field)]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _key(field: Field[Any], hint: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if "help" in field.metadata:
        schema["description"] = field.metadata["help"]
    if is_section(hint):
        return schema | _section(hint)
    default = field.default if field.default is not MISSING else None
    if field.default_factory is not MISSING:
        default = field.default_factory()
    schema["default"] = default.value if isinstance(default, Enum) else default
    shape = _shape(hint)
    accepts_text = hint in (str, Any) or str in get_args(hint)
    if accepts_text or get_origin(hint) is dict:
        return schema | shape
    return schema | {"anyOf": [shape, _INTERPOLATION]}


def _shape(hint: Any) -> dict[str, Any]:
    if get_origin(hint) in (Union, UnionType):
        options = get_args(hint)
        if all(option in _TYPES for option in options):
            return {"type": [_TYPES[option] for option in options]}
        return {"anyOf": [_shape(option) for option in options]}
    if get_origin(hint) is list:
        return {"type": "array", "items": _shape(get_args(hint)[0])}
    if get_origin(hint) is dict:
        return {"type": "object"}
    if hint is Any:
        return {}
    if issubclass(hint, Enum):
        return {"enum": [option.value for option in hint]}
    return {"type": _TYPES[hint]}
