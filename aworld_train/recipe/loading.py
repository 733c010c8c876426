"""Loads a file, a mapping or a ``Recipe``, with overrides, into one checked ``Recipe``.

Layers are merged into the defaults in this order: the recipe that ``extends`` names (its own ancestors first), the
recipe, the overrides; the values of ``algorithm.preset`` come before the layer that names it. Each is checked on its
own, so that an error names its file and line; then the whole is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from aworld_train.errors import RecipeError
from aworld_train.recipe import checks, interpolation, locate, secret_keys, values
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.faults import Check, Faults, refuse
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK, RAW, is_section, known_keys, types_of
from aworld_train.recipe.output import to_dict, to_source
from aworld_train.recipe.presets import lacks_its_preset, with_preset
from aworld_train.recipe.schema import Recipe, TrainerSection
from aworld_train.recipe.secret_keys import MASK, looks_secret, written_out
from aworld_train.recipe.source import Layer, from_mapping, parse_value, read_file
from aworld_train.recipe.tree import KeyPath, filled, leaves, merge, put, without
from aworld_train.recipe.values import is_text

_FRAMEWORK = re.compile("[a-z][a-z0-9_]*")
Source = str | Path | Mapping[str, Any] | Recipe


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe together with what a run folder keeps of it.

    ``unresolved`` is plain data with every key and interpolations as written: it holds no secret and gives the same
    recipe when loaded again. ``path`` is None for a mapping or a ``Recipe``.
    """

    recipe: Recipe
    path: Path | None
    unresolved: dict[str, Any]


def load(source: Source, overrides: Sequence[str] = (), *, also: Sequence[Check] = ()) -> Recipe:
    """The recipe in ``source``, complete, resolved and checked; one RecipeError has all its faults with their places.

    ``source`` can be the name of a ready recipe; ``overrides`` are ``key=value`` with dotted keys and YAML values.
    """
    return read(source, overrides, also=also).recipe


def read(
    source: Source,
    overrides: Sequence[str] = (),
    defaults: Layer = Layer({}),  # noqa: B008
    *,
    also: Sequence[Check] = (),
) -> LoadedRecipe:
    """As ``load``, together with the file it came from and the unresolved form that a run folder stores.

    ``defaults`` take the place of the schema's, also for a key with a fault, so that one mistake hides no other.
    """
    path, layers = _layers(source)
    override_layers = _read_overrides(overrides)
    layers = with_preset([*layers, *override_layers], len(override_layers))
    framework = _framework(layers)
    faults = Faults([defaults, *layers])
    base = tree = merge(to_dict(Recipe(trainer=TrainerSection(framework=framework))), defaults.data)
    for layer in layers:
        data = layer.data
        for key, text in _faults(layer, framework):
            faults.add(key, text, layer)
            data = without(data, key)
        tree = merge(tree, data)
    resolved, tree = _resolve(tree, base, framework, faults)
    complete = filled(tree, resolved)
    complete[RAW] = complete.pop(framework)
    mismatches: dict[KeyPath, str] = {}
    recipe: Recipe = _build(Recipe, complete, (), mismatches)
    for key, text in mismatches.items():
        faults.add(key, text)
    for _, value in leaves(to_dict(recipe)):
        if isinstance(value, EnvText):
            interpolation.mask_values(value.lookups)
    faults.add_later(checks.problems(recipe, faults.keys))
    for check in also:
        if not faults.sections.intersection(check.sections):
            faults.add_later(check.faults(recipe))
    faults.refuse()
    return LoadedRecipe(recipe, path, tree)


def _read_overrides(texts: Sequence[str]) -> list[Layer]:
    layers, errors = [], []
    for text in texts:
        try:
            layers.append(read_override(text))
        except RecipeError as error:
            errors.append(error.message)
    refuse(errors)
    return layers


def _resolve(
    tree: dict[str, Any], base: Mapping[str, Any], framework: str, faults: Faults
) -> tuple[dict[KeyPath, Any], dict[str, Any]]:
    """The values of the interpolations in ``tree``, and the tree with the values of ``base`` where they have none."""
    resolved, failures = interpolation.resolve(tree, framework)
    while failures:
        for key, text in failures.items():
            faults.add(key, text)
            tree = merge(base, without(tree, key))
        resolved, failures = interpolation.resolve(tree, framework)
    return resolved, tree


def _layers(source: Source) -> tuple[Path | None, list[Layer]]:
    if isinstance(source, str | Path):
        path = locate.find(str(source), Path.cwd())
        return path, _with_ancestors(read_file(path, locate.display(path)), path, ())
    if isinstance(source, Recipe):
        if source.extends is not None:
            raise RecipeError("`extends` has no effect in a Recipe object, which already has every value")
        if lacks_its_preset(source):
            raise RecipeError(
                "`algorithm.preset` has no effect in a Recipe object, which already has every value: "
                "recipe.load({'algorithm': {'preset': ...}}) gives one with those of the preset"
            )
        return None, [from_mapping(to_source(source))]
    return None, _with_ancestors(from_mapping(source), None, ())


def parent_of(path: Path) -> Path | None:
    layer = read_file(path, locate.display(path))
    parent = layer.data.get("extends")
    return locate.find(parent, path.parent, layer.at(("extends",))) if isinstance(parent, str) else None


def _with_ancestors(layer: Layer, path: Path | None, chain: tuple[Path, ...]) -> list[Layer]:
    parent = layer.data.pop("extends", None)
    if path is not None:
        chain = (*chain, path.resolve())
    if parent is None:
        return [layer]
    named_at = layer.at(("extends",))
    if not isinstance(parent, str):
        raise RecipeError(_located(named_at, f"`extends` expects text, got {values.describe(parent)}"))
    parent_path = locate.find(parent, path.parent if path else Path.cwd(), named_at)
    if parent_path.resolve() in chain:
        circle = " -> ".join(locate.display(file) for file in (*chain, parent_path))
        raise RecipeError(_located(named_at, f"recipes extend each other in a circle: {circle}"))
    return [*_with_ancestors(read_file(parent_path, locate.display(parent_path)), parent_path, chain), layer]


def _framework(layers: Sequence[Layer]) -> str:
    """The framework that the layers name; the section of its own keys has the same name."""
    name = DEFAULT_FRAMEWORK
    for layer in layers:
        section = layer.data.get("trainer")
        value = section.get("framework") if isinstance(section, Mapping) else None
        if isinstance(value, str):  # anything else is refused with the other faults
            name = value
            if not _FRAMEWORK.fullmatch(name) or name in types_of(Recipe):
                raise RecipeError(
                    _located(
                        layer.at(("trainer", "framework")),
                        "`trainer.framework` names a section of the recipe, so it is written out, in small letters, "
                        f"digits and `_`, and no other section has that name; it is {name!r}",
                    )
                )
    return name


def _faults(layer: Layer, framework: str) -> list[tuple[KeyPath, str]]:
    data = dict(layer.data)
    raw = data.pop(framework, {})
    other = data.pop(DEFAULT_FRAMEWORK, None)
    faults = [*values.problems(data, Recipe), *secret_keys.written_out(layer.data, framework)]
    algorithm = data.get("algorithm")
    preset = algorithm.get("preset") if isinstance(algorithm, Mapping) else None
    if isinstance(preset, str) and "${" in preset:
        faults.append(
            (("algorithm", "preset"), "`algorithm.preset` names values of the recipe: write it out")
        )
    if other is not None:
        text = f"the section `{DEFAULT_FRAMEWORK}` has no effect: `trainer.framework` is {framework}"
        faults.append(((DEFAULT_FRAMEWORK,), text))
    if RAW in data:
        faults.append(((RAW,), f"unknown key `{RAW}`; did you mean `{framework}`?"))
    if not isinstance(raw, Mapping):
        faults.append(((framework,), values.mismatch((framework,), raw, dict[str, Any])))
    return faults


def _build(section: Any, data: dict[str, Any], path: KeyPath, faults: dict[KeyPath, str]) -> Any:
    """The dataclass for ``data``; values of the wrong type are left out and reported in ``faults``."""
    arguments: dict[str, Any] = {}
    for field, (name, hint) in zip(fields(section), types_of(section).items(), strict=True):
        if name not in data:
            continue
        key_path, value = (*path, name), data[name]
        if is_section(hint):
            arguments[field.name] = _build(hint, value, key_path, faults)
        else:
            try:
                arguments[field.name] = values.convert(value, hint)
            except ValueError:
                faults[key_path] = values.mismatch(key_path, value, hint)
    return section(**arguments)


def _located(location: str, text: str) -> str:
    return f"{location}: {text}" if location else text


def read_override(text: str) -> Layer:
    key, equals, raw = text.partition("=")
    path = tuple(key.strip().split("."))
    name = f"override {key.strip()}={MASK}" if looks_secret(path) else f"override {text}"
    if not equals:
        raise RecipeError(f"`{text}` is not an override: write key=value, such as trainer.steps=20")
    if not all(path):
        raise RecipeError(f"{name}: the key has an empty part")
    if path[0] == "extends":
        raise RecipeError(f"{name}: `extends` is a key of recipe files and cannot be overridden")
    if not raw.strip():
        raise RecipeError(
            f"{name}: the value is missing; write {key}=null for none or {key}='\"\"' for empty text"
        )
    takes_text = is_text(known_keys().get(path))
    try:
        value = parse_value(raw)
    except ValueError as error:
        if not takes_text:
            raise RecipeError(f"{name}: the value is not YAML: {error}") from error
        value = raw
    if takes_text and value is not None and not isinstance(value, str):
        value = raw
    tree: dict[str, Any] = {}
    put(tree, path, value)
    if next(written_out(tree), None):
        name = f"override {key.strip()}={MASK}"
    return Layer(tree, name)
