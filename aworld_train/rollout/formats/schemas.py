"""The types of tools' arguments, for formats that write all values as plain text.

A value that does not fit its type stays text, so that the tool can refuse it with its own words.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

Tools = Sequence[Mapping[str, Any]]
_NUMBERS = {"integer", "number"}
_MAX_LITERAL = 10_000  # characters of a value that is read as a Python literal


def tool_names(tools: Tools) -> set[Any]:
    return {function.get("name") for function in _functions(tools)}


def parameter_schemas(tools: Tools, name: str) -> Mapping[str, Any]:
    function = next((function for function in _functions(tools) if function.get("name") == name), {})
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _functions(tools: Tools) -> list[Mapping[str, Any]]:
    functions = [tool.get("function", tool) for tool in tools]
    return [function for function in functions if isinstance(function, Mapping)]


def converted(text: str, schema: Any) -> Any:
    """The value that a text stands for by an argument's schema; without a type, JSON where it is JSON, else text."""
    types = _types(schema)
    value = text.strip()
    if "string" in types:
        if value in ("null", "None") and "null" in types:
            return None
        return _number(value, text) if types & _NUMBERS else text
    if not types:
        return _json(value, text)
    if value.lower() in ("true", "false") and "boolean" in types:
        return value.lower() == "true"
    if value in ("null", "None"):
        return None
    if types & _NUMBERS:
        number = _number(value, text)
        if number is not text:
            return number
    if types & {"array", "object"}:
        return _structure(value, text)
    return text


def _types(schema: Any) -> set[str]:
    """The JSON types that a schema allows; empty where it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, Sequence):
        return {name for name in declared if isinstance(name, str)}
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    found = [_types(choice) for choice in choices] if isinstance(choices, Sequence) else []
    if found:
        return set().union(*found) if all(found) else set()
    values = schema.get("enum")
    if isinstance(values, Sequence) and values and all(isinstance(value, str) for value in values):
        return {"string"}
    return set()


def _number(value: str, otherwise: str) -> Any:
    number = _json(value, otherwise)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else otherwise


def _json(value: str, otherwise: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return otherwise


def _structure(value: str, otherwise: str) -> Any:
    """A list or mapping in JSON, or as templates that print Python values show it."""
    read = _json(value, otherwise)
    if read is not otherwise or len(value) > _MAX_LITERAL or value[:1] not in ("[", "{"):
        return read
    try:
        literal = ast.literal_eval(value)
        json.dumps(literal)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return otherwise
    return literal
