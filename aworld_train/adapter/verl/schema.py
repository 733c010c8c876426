"""Checks verl configuration against the default configuration that ships with the installed verl.

verl silently ignores a key that it does not know, and a value of the wrong type fails minutes later in another process.
Every key must be in the defaults, a field of the dataclass that verl builds in its place, in ``key_rules``, or inside a
map that accepts any keys. Neither verl nor torch is imported.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from aworld_train.adapter.verl.config_classes import (
    FieldType,
    describe,
    fields_of,
    in_words,
    kind_of,
    verl_folder,
)
from aworld_train.adapter.verl.key_rules import (
    ALSO_TAKES,
    IGNORED_SECTIONS,
    NAMED_ENTRIES,
    is_open,
    read_anyway,
)
from aworld_train.errors import RecipeError
from aworld_train.recipe.faults import refuse
from aworld_train.recipe.interpolation import EnvLookups
from aworld_train.recipe.schema import Method, Strategy
from aworld_train.recipe.tree import KeyPath, dotted, leaves, merge

_DEFAULTS = {
    Strategy.fsdp2: "trainer/config/_generated_ppo_trainer.yaml",
    Strategy.megatron: "trainer/config/_generated_ppo_megatron_trainer.yaml",
    Method.sft: "trainer/config/sft_trainer_engine.yaml",
}
Defaults = Strategy | Method
"""Whose defaults: those of VeRL's RL trainer with a strategy, or of its SFT trainer."""
_MISSING = "???"  # OmegaConf's mark for a value that must be given


def default_config(of: Defaults = Strategy.fsdp2) -> dict[str, Any]:
    """With unresolved interpolations, and ``???`` for required values."""
    return deepcopy(_defaults(of))


def check(config: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Refuse keys in ``overrides`` that verl does not know, and values of the wrong type; ``config`` includes them."""
    refuse([text for _, text in faults(config, overrides)])


def faults(config: dict[str, Any], overrides: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    return _faults(overrides, config, _resolved_defaults(_defaults_below(config)), (), {})


def resolve(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with every interpolation replaced by its value, except lookups of environment variables.

    Lookups stay as they are written, also where other interpolations copy them. A missing required value becomes
    null if its section is switched off (``enable`` or ``enabled`` is false), because verl does not read it then.
    """
    complete = deepcopy(config)
    refuse(
        [
            f"verl needs `{dotted(path)}` and has no default for it; set `verl.{dotted(path)}`"
            for path, value in leaves(config)
            if value == _MISSING and not _switch_off(complete, path)
        ]
    )
    lookups = EnvLookups()
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(lookups.hide(complete)), resolve=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "?"
        raise RecipeError(f"verl key `{key}` cannot be resolved: {str(error).splitlines()[0]}") from error
    assert isinstance(resolved, dict)
    return {str(key): lookups.restore(value) for key, value in resolved.items()}


def _defaults_below(config: Mapping[str, Any]) -> Defaults:
    engine = config.get("engine")  # which the SFT trainer's defaults have
    if isinstance(engine, Mapping) and "_target_" in engine:
        return Method.sft
    is_megatron = config["actor_rollout_ref"]["actor"]["strategy"] == Strategy.megatron.value
    return Strategy.megatron if is_megatron else Strategy.fsdp2


@cache
def _defaults(of: Defaults) -> dict[str, Any]:
    """Of the SFT trainer VeRL ships no generated file, so the files that Hydra would compose are merged."""
    file = verl_folder() / _DEFAULTS[of]
    config = _read(file)
    for entry in config.pop("defaults", ()):
        for group, name in entry.items() if isinstance(entry, dict) else ():
            folder, _, section = group.partition("@")
            part = _read(file.parent / folder / f"{name}.yaml")
            config[section] = {key: value for key, value in part.items() if key != "defaults"}
    return config


@cache
def _resolved_defaults(of: Defaults) -> dict[str, Any]:
    """The defaults, whose types are compared with, with the settings of TransferQueue, which verl only passes on."""
    defaults = default_config(of)
    spec = find_spec("transfer_queue")
    if spec and spec.origin and "transfer_queue" in defaults:
        queue = _read(Path(spec.origin).parent / "config.yaml")
        defaults["transfer_queue"] = merge(queue, defaults["transfer_queue"])
    for path, value in leaves(default_config(of)):
        if value == _MISSING:
            _unset(defaults, path)
    return resolve(defaults)


def _read(file: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data: dict[str, Any] = yaml.load(file.read_text(), Loader=loader)
    return data


def _faults(
    overrides: Mapping[str, Any], config: Any, defaults: Any, path: KeyPath, fields: dict[str, FieldType]
) -> Iterator[tuple[KeyPath, str]]:
    """The faults of ``overrides``, the map at ``path``, compared with the maps at that path in the other trees."""
    template = NAMED_ENTRIES.get(dotted(path))
    extra = read_anyway(path)
    for key, value in overrides.items():
        key_path = (*path, key)
        kind = fields.get(key) or extra.get(key) or FieldType()
        known = key in defaults or key in fields or key in extra
        default = defaults.get(key, defaults.get(template))
        if key == "_target_":
            continue
        if not known and template is None:
            yield key_path, _unknown(key_path, {*defaults, *fields, *extra})
        elif not path and key in IGNORED_SECTIONS and any(leaf is not None for _, leaf in leaves(value)):
            yield key_path, f"verl's trainer does not read `{key}`; use `{IGNORED_SECTIONS[key]}`"
        elif is_open(key_path, default, kind):
            if isinstance(value, list | bool | int | float):
                yield key_path, f"verl key `{dotted(key_path)}` expects a map, got {describe(value)}"
        elif isinstance(value, Mapping) and (
            isinstance(default, Mapping) or kind.section or read_anyway(key_path)
        ):
            below = config.get(key) if isinstance(config, Mapping) else None
            inside = _fields(below, default, kind)
            if inside is not None:  # the fields of a class outside verl are unknown
                yield from _faults(value, below, default or {}, key_path, inside)
        elif wrong := _mismatch(key_path, value, default, kind, annotated=key in fields or key in extra):
            yield key_path, wrong


def _fields(config: Any, default: Any, kind: FieldType) -> dict[str, FieldType] | None:
    """The fields of the dataclass that a map becomes: by its ``_target_``, else by the type of its field.

    Empty for a map that becomes no dataclass, None for one whose class is not verl's.
    """
    targets = [
        tree["_target_"] for tree in (config, default) if isinstance(tree, Mapping) and "_target_" in tree
    ]
    name = next(iter(targets), kind.section)
    return fields_of(name) if name else {}


def _mismatch(path: KeyPath, value: Any, default: Any, kind: FieldType, *, annotated: bool) -> str | None:
    """The message about a value of the wrong type; None if its type is right.

    Without an annotation the type is that of the default, null is accepted, and a null default accepts any value.
    """
    if isinstance(value, str) and "${" in value:
        return None
    accepts = set(kind.accepts)
    if not annotated and value is None:
        return None
    if default is None and not accepts:
        return None
    if default is not None and (accepts or not annotated):
        accepts |= {kind_of(default)} | ({"int"} if isinstance(default, float) else set())
    accepts |= ALSO_TAKES.get(dotted(path), set())
    if not accepts or kind_of(value) in accepts or (default is None and value is None):
        return None
    return f"verl key `{dotted(path)}` expects {in_words(accepts)}, got {describe(value)}"


def _unknown(path: KeyPath, level: set[str]) -> str:
    nearest_key = _nearest(path, level)
    return f"verl has no key `{dotted(path)}`" + (f"; did you mean `{nearest_key}`?" if nearest_key else "")


def _nearest(path: KeyPath, level: set[str]) -> str | None:
    """The valid key that the user most likely meant: similar in ``level``, of the same name elsewhere, then similar."""
    name = path[-1]
    for key_path in get_close_matches(name, level, n=1, cutoff=0.8):
        return dotted((*path[:-1], key_path))
    keys = _known_keys()
    names = (
        [name] if any(key[-1] == name for key in keys) else get_close_matches(name, {key[-1] for key in keys})
    )
    candidates = [dotted(key) for key in keys if key[-1] in names[:1]]
    return max(candidates, key=lambda key: SequenceMatcher(None, key, dotted(path)).ratio(), default=None)


@cache
def _known_keys(of: Defaults = Strategy.fsdp2) -> tuple[KeyPath, ...]:
    return tuple(sorted(_keys_below(_resolved_defaults(of), (), {})))


def _keys_below(defaults: Mapping[str, Any], path: KeyPath, fields: dict[str, FieldType]) -> set[KeyPath]:
    keys = {(*path, key) for key in {*defaults, *fields, *read_anyway(path)} - {"_target_"}}
    if not path:
        keys -= {(key,) for key in IGNORED_SECTIONS}
    for key, value in defaults.items():
        if isinstance(value, Mapping) and (path or key not in IGNORED_SECTIONS):
            inside = fields_of(value["_target_"]) if "_target_" in value else {}
            keys |= _keys_below(value, (*path, key), inside or {})
    return keys


def _switch_off(config: dict[str, Any], path: KeyPath) -> bool:
    """Set the value at ``path`` to null if a section above it is switched off; returns whether it is."""
    node: Any = config
    off = False
    for key in path[:-1]:
        node = node[int(key)] if isinstance(node, list) else node[key]
        if isinstance(node, dict):
            off = off or node.get("enable") is False or node.get("enabled") is False
    if off:
        _unset(config, path)
    return off


def _unset(tree: Any, path: KeyPath) -> None:
    for key in path[:-1]:
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    tree[int(path[-1]) if isinstance(tree, list) else path[-1]] = None
