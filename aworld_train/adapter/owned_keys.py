"""Finds the raw keys of a recipe that its framework does not leave to recipes."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from aworld_train.recipe.tree import KeyPath, dotted, map_values


def owned_faults(
    framework: str, owned: Mapping[str, str], raw: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """The keys in a recipe's section of raw keys that it may not set: the recipe's key, and one sentence for each.

    ``owned`` has dotted keys, with everything below them, or patterns of keys, and the reason as a part of a sentence.
    """
    for path, value in map_values(raw):
        key = dotted(path)
        reason = _reason(path, owned)
        if reason is not None:
            yield (framework, *path), f"{framework}.{key} cannot be set: {reason.removesuffix('.')}."
        elif not isinstance(value, Mapping) and (part := _first_below(key, owned)):
            yield (
                (framework, *path),
                f"{framework}.{key} cannot be set as a whole, because {part} is part of it: "
                f"{owned[part].removesuffix('.')}.",
            )


def _reason(path: KeyPath, owned: Mapping[str, str]) -> str | None:
    for length in range(len(path), 0, -1):
        covering = dotted(path[:length])
        if covering in owned:
            return owned[covering]
        for pattern, reason in owned.items():
            if "*" in pattern and fnmatchcase(covering, pattern):
                return reason
    return None


def _first_below(key: str, owned: Mapping[str, str]) -> str | None:
    return next((pattern for pattern in owned if pattern.startswith(f"{key}.")), None)
