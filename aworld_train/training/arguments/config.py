"""The configuration of a program: a recipe in any form, or the configuration file of the framework itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import TrainingFramework
from aworld_train.errors import UsageError


def config_argument(config: Any, framework: TrainingFramework) -> Any:
    """What a recipe is read from: a path, a mapping or a recipe; a text or the framework's own file as a mapping."""
    if config is None:
        return {}
    content = _content(config)
    if content is None:
        return config
    recipe = framework.recipe_from(content)
    if recipe is not None:
        return recipe
    # A file is read again as a recipe, for the line numbers in messages.
    return content if isinstance(config, str) and _is_text(config) else config


def _content(config: Any) -> Mapping[str, Any] | None:
    """The mapping in a configuration; None for an object, and for a name or a file that recipes are found by."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str) and _is_text(config):
        return _parsed(config)
    if isinstance(config, str | Path) and Path(config).expanduser().is_file():
        try:
            return _parsed(Path(config).expanduser().read_text(encoding="utf-8"))
        except (OSError, ValueError, UsageError):
            return None  # the reader of recipes says what is wrong, with the line
    return None


def _is_text(config: str) -> bool:
    return "\n" in config or config.lstrip().startswith("{")


def _parsed(text: str) -> Mapping[str, Any]:
    import yaml

    try:
        # YAML refuses tabs between the values of JSON.
        content = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The text of the configuration is neither YAML nor JSON: {error}") from None
    if not isinstance(content, Mapping):
        raise UsageError("The text of the configuration holds no mapping of keys to values.")
    return content
