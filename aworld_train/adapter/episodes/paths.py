"""Paths in a recipe made absolute, because a run's processes do not work in the user's directory."""

from pathlib import Path

from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.paths import whole_reference

EPISODES_FILE = "episodes.yaml"
REWARD_FILE = "reward.yaml"


def absolute_path(path: str | None) -> str | None:
    """The absolute path of an existing file or folder; other text, such as a model's name on the hub, is unchanged."""
    if not path:
        return path
    expanded = Path(path).expanduser()
    if not expanded.exists():
        return path
    return whole_reference(path) if isinstance(path, EnvText) else str(expanded.resolve())


def absolute_argument(part: str) -> str:
    """The absolute path of an existing file; a plain word, and a symbolic link (as of an interpreter) are unchanged."""
    expanded = Path(part).expanduser()
    named = "/" in part or bool(expanded.suffix)
    if not (named and expanded.exists()):
        return part
    return whole_reference(part) if isinstance(part, EnvText) else str(expanded.absolute())


def absolute_function(spec: str, directory: str = "") -> str:
    """``file.py:name`` with the file's absolute path, relative to ``directory``; ``module:name`` is unchanged."""
    origin, _, name = spec.rpartition(":")
    if isinstance(spec, EnvText):
        return whole_reference(spec, directory) if origin.endswith(".py") else spec
    return f"{(directory / Path(origin).expanduser()).resolve()}:{name}" if origin.endswith(".py") else spec
