"""Paths in a recipe as VeRL's processes find them, which do not run where the user is."""

from pathlib import Path


def place(path: str | None) -> str:
    """The whole path of what exists; anything else, such as the name of a model on the hub, stays as it is."""
    given = Path(path or "").expanduser()
    return str(given.resolve()) if given.exists() else str(path)


def function_place(spec: str) -> str:
    """``file.py:name`` with the whole path of the file; ``module:name`` as it is."""
    origin, _, name = spec.rpartition(":")
    return f"{Path(origin).expanduser().resolve()}:{name}" if origin.endswith(".py") else spec
