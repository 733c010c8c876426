"""Resolves ``${...}``: environment variables and other keys of the recipe.

What stands under ``verl:`` is left as written. Interpolations there mean what they mean in verl's own files
and are resolved against verl's configuration; only environment variables are looked up here, to fail early.
"""

import os
import re
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from aworld_train.recipe.tree import KeyPath, dotted, leaves

_ENV = re.compile(r"\$\{\s*oc\.env\s*:\s*([A-Za-z_]\w*)\s*\}")
_OTHER_THAN_ENV = re.compile(r"\$\{(?!\s*oc\.env\s*:)")
_OPENING = re.compile(r"(\\*)\$\{")


def resolve(tree: dict[str, Any]) -> tuple[dict[KeyPath, Any], dict[KeyPath, str]]:
    """Look up every interpolation of ``tree``.

    Returns:
        By path the values of the texts that hold interpolations (lists and maps as plain data), and for those
        that have none the sentence that says why.
    """
    values: dict[KeyPath, Any] = {}
    failures: dict[KeyPath, str] = {}
    texts = {path: text for path, text in leaves(tree) if isinstance(text, str) and "${" in text}
    for path, text in texts.items():
        try:
            OmegaConf.create([text])
        except GrammarParseError as error:
            failures[path] = _reason(path, text, error)
    if failures:
        return values, failures  # one text with broken grammar makes the whole tree unreadable
    config = OmegaConf.create(tree)
    for path, text in texts.items():
        if path[0] == "verl" and _OTHER_THAN_ENV.search(text):
            continue
        try:
            value = _value(config, path)
        except OmegaConfBaseException as error:
            failures[path] = _reason(path, text, error)
        else:
            if path[0] != "verl":
                values[path] = value
    return values, failures


def escape(text: str) -> str:
    """``text`` so that a recipe that holds it loads as the very same text, with nothing looked up."""
    return _OPENING.sub(lambda opening: opening.group(1) * 2 + r"\${", text)


def _value(config: Any, path: KeyPath) -> Any:
    node = config
    for key in path:
        node = node[key if OmegaConf.is_dict(node) else int(key)]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _reason(path: KeyPath, text: str, error: Exception) -> str:
    unset = [name for name in _ENV.findall(text) if name not in os.environ]
    if unset:
        return f"`{dotted(path)}` needs the environment variable {unset[0]}, which is not set"
    return f"`{dotted(path)}`: cannot resolve `{text}`: {str(error).splitlines()[0]}"
