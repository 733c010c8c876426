"""Merges nested dictionaries and iterates over their leaves; lists are replaced as a whole."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

KeyPath = tuple[str, ...]
"""The place of a value: the keys from the root, with list positions as text."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: deepcopy(value) for key, value in base.items()}
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def leaves(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is not a filled map or list, with its path."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, str(key)))
    elif isinstance(tree, list) and tree:
        for position, value in enumerate(tree):
            yield from leaves(value, (*path, str(position)))
    else:
        yield path, tree


def map_values(tree: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is not a filled map, with its path; a list is one value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from map_values(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def without(tree: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
    """A new tree that has nothing at ``path``; a list is left out as a whole if an item of it is meant."""
    key, *below = path
    if below and isinstance(tree.get(key), Mapping):
        return {**tree, key: without(tree[key], tuple(below))}
    return {name: value for name, value in tree.items() if name != key}


def filled(tree: Any, values: Mapping[KeyPath, Any], path: KeyPath = ()) -> Any:
    if isinstance(tree, dict):
        return {key: filled(value, values, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [filled(value, values, (*path, str(position))) for position, value in enumerate(tree)]
    return values.get(path, tree)


def dotted(path: KeyPath) -> str:
    return ".".join(path)


def nested(path: KeyPath, value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    tree: dict[str, Any] = value
    return tree


def put(tree: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Set the value at ``path``, with maps above it where there are none."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """``tree`` with every value that is not a map or a list changed."""
    if isinstance(tree, dict):
        return {key: mapped(value, change) for key, value in tree.items()}
    return [mapped(value, change) for value in tree] if isinstance(tree, list) else change(tree)
