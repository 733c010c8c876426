"""Checks the types of values and converts plain data to the types of a ``Recipe``.

A value is never coerced: ``3.7`` is not a whole number and ``"8"`` is not ``8``. Only text that an interpolation
produced is read as YAML first. Pydantic would be faster, but silently accepts an unknown key, refuses text with an
interpolation, and reports neither lines nor nearest keys (tried with 2.14).
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from aworld_train.errors import nearest
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK, is_section, suggestion, types_of
from aworld_train.recipe.source import parse_value
from aworld_train.recipe.tree import KeyPath, dotted

INTERPOLATION = "${"


def problems(data: Mapping[str, Any], section: type, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """The faults of the keys and types of ``data``, each as a path and a sentence.

    Text with an interpolation is accepted for any key that is not a section; its type is known only later.
    """
    hints = types_of(section)
    for name, value in data.items():
        key_path = (*path, name)
        hint = hints.get(name)
        if hint is None:
            yield key_path, f"unknown key `{dotted(key_path)}`{_remedy(key_path, value)}"
        elif is_section(hint):
            if isinstance(value, Mapping):
                yield from problems(value, hint, key_path)
            else:
                yield (
                    key_path,
                    f"`{dotted(key_path)}` is a section: expected keys below it, got {describe(value)}",
                )
        elif not fits(value, hint) and not _interpolated(value):
            yield key_path, mismatch(key_path, value, hint)


def _remedy(path: KeyPath, value: Any) -> str:
    *parents, name = path
    if "." in name:
        names = [*parents, *name.split(".")]
        nested = ": {".join(names) + ": ..." + "}" * (len(names) - 1)
        return f"; in a file a key is below its section: write `{nested}`"
    if hint := suggestion(path):
        return f"; did you mean `{hint}`?"
    if not parents and isinstance(value, Mapping):
        return (
            f"; keys of the framework itself stand below its name, as `{DEFAULT_FRAMEWORK}: {{{name}: ...}}`"
        )
    return ""


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value`` is of the type ``hint``; text with interpolations counts as any item of a list."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if origin is list:
        (item,) = get_args(hint)
        return isinstance(value, list) and all(fits(entry, item) or _interpolated(entry) for entry in value)
    if origin is dict:
        return isinstance(value, Mapping)
    if hint is float:
        return isinstance(value, float) or (_whole(value) and abs(value) <= 2**53)
    if hint is int:
        return _whole(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return isinstance(value, str) and value in [option.value for option in hint]
    return isinstance(value, hint)


def mismatch(path: KeyPath, value: Any, hint: Any) -> str:
    sentence = f"`{dotted(path)}` expects {expected(hint)}, got {describe(value)}"
    if isinstance(hint, type) and issubclass(hint, Enum) and isinstance(value, str):
        if isinstance(value, EnvText):
            return sentence
        hint = nearest(value, [option.value for option in hint])
        return sentence + (f"; did you mean `{hint}`?" if hint else "")
    if get_origin(hint) is list and isinstance(value, list):
        (item,) = get_args(hint)
        position, wrong = next((at, entry) for at, entry in enumerate(value, 1) if not fits(entry, item))
        return f"`{dotted(path)}` expects {expected(hint)}, item {position} is {describe(wrong)}"
    if get_origin(hint) is list and isinstance(value, str) and not isinstance(value, EnvText):
        return sentence + "; write its items in brackets, as [a, b]"
    if is_text(hint) and isinstance(value, bool | int | float):
        return sentence + "; put it in quotes to make it text"
    return sentence


def expected(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(expected(option) for option in get_args(hint))
    if origin is list:
        return f"a list of {expected(get_args(hint)[0])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(option.value for option in hint)
    type_names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        NoneType: "null",
    }
    return type_names.get(hint, "a map")


def describe(value: Any) -> str:
    """The value in words, short enough for one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, EnvText):
        return f"text from {value.reference}"
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    return f"text {shown}" if isinstance(value, str) else f"{shown}"


def is_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) in (Union, UnionType) and set(get_args(hint)) <= {str, NoneType})


def convert(value: Any, hint: Any) -> Any:
    """``value``, after interpolation, as the type of the schema; ValueError with its description if it has another.

    A list or map from the text of one environment variable is refused too, because its items would have no reference.
    """
    if isinstance(value, EnvText) and get_origin(hint) in (list, dict):
        raise ValueError(describe(value))
    if isinstance(value, str) and not is_text(hint) and not fits(value, hint):
        value = parse_value(value)
    elif is_text(hint) and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not fits(value, hint):
        raise ValueError(describe(value))
    if hint is float:
        return float(value)
    if get_origin(hint) is list:
        return [convert(entry, get_args(hint)[0]) for entry in value]
    options = (hint, *get_args(hint))
    enum = next((option for option in options if isinstance(option, type) and issubclass(option, Enum)), None)
    return value if enum is None or value is None else enum(value)


def _interpolated(value: Any) -> bool:
    return isinstance(value, str) and INTERPOLATION in value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
