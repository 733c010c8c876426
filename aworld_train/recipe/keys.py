"""The keys of recipes, from ``schema``, and the most similar one to an unknown key.

Only ``RAW`` has another name in recipe files, where the section of the framework's own keys is named after the
framework; and a key that is a word of Python's has no underscore at its end there.
"""

from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from aworld_train.errors import nearest
from aworld_train.recipe.schema import Recipe, TrainerSection
from aworld_train.recipe.tree import KeyPath, dotted

RAW = "raw"
DEFAULT_FRAMEWORK = TrainerSection().framework
_ALMOST_THE_SAME, _SIMILAR = 0.85, 0.61  # ratios of difflib


def is_section(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


@cache
def types_of(section: Any) -> dict[str, Any]:
    hints = get_type_hints(section)
    return {key_of(field): hints[field.name] for field in fields(section)}


def key_of(field: Field[Any]) -> str:
    return field.name.rstrip("_")


@cache
def known_keys(section: type = Recipe, path: KeyPath = ()) -> dict[KeyPath, Any]:
    keys: dict[KeyPath, Any] = {}
    for name, hint in types_of(section).items():
        if (*path, name) == (RAW,):
            name = DEFAULT_FRAMEWORK
        keys[(*path, name)] = hint
        if is_section(hint):
            keys |= known_keys(hint, (*path, name))
    return keys


def suggestion(path: KeyPath) -> str | None:
    """The known key that the user probably meant by ``path``, dotted.

    A key whose name is longer by words comes first. One of the same name in another section, or of almost the same,
    comes before a similar name in the same section: ``step`` at the top level means ``trainer.steps``, not ``store``.
    """
    parent, name = path[:-1], path[-1].lstrip("+~")
    if name == "learning_rate":
        return "trainer.lr"  # the name that transformers and trl have for it
    siblings = sorted(key[-1] for key in known_keys() if key[:-1] == parent)
    if longer := next((key for key in siblings if key.startswith(f"{name}_")), None):
        return dotted((*parent, longer))
    # Among other sections the order of the schema decides, which begins with what is written most.
    if same_name := [key for key in known_keys() if key[-1] == name]:
        return dotted(same_name[0])
    for cutoff in (_ALMOST_THE_SAME, _SIMILAR):
        if sibling := nearest(name, siblings, cutoff=cutoff):
            return dotted((*parent, sibling))
        if anywhere := nearest(name, {key[-1] for key in known_keys()}, cutoff=cutoff):
            return dotted(next(key for key in known_keys() if key[-1] == anywhere))
    return nearest(dotted(path), {dotted(key) for key in known_keys()})
