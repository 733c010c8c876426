"""Finds recipes: files that the user names, and the ready ones that ship with the package."""

import re
from collections.abc import Collection
from pathlib import Path

import aworld_train
from aworld_train.errors import RecipeError, suggestion


def shipped_folder() -> Path | None:
    """The folder of ready recipes: package data in an installed wheel, ``recipes/`` in a checkout."""
    package = Path(aworld_train.__file__).parent
    for folder in (package / "_recipes", package.parent / "recipes"):
        if folder.is_dir():
            return folder
    return None


def shipped() -> dict[str, Path]:
    """The ready recipes, bases included, by name: the path below their folder without ``.yaml``."""
    folder = shipped_folder()
    if folder is None:
        return {}
    # Descriptions of AWorld agents and of datasets are YAML files too, but no recipes of runs.
    others = (folder / "agents", folder / "datasets")
    files = [file for file in sorted(folder.rglob("*.yaml")) if file.parent not in others]
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def is_base(name: str) -> bool:
    """Whether a ready recipe is a base: it says where a job runs, and others extend it."""
    return name.startswith("base/")


def is_benchmark(name: str) -> bool:
    """Whether a ready recipe is a benchmark: it says how agents are evaluated, and not how one is trained."""
    return name.startswith("benchmarks/")


def shipped_datasets() -> list[str]:
    folder = shipped_folder()
    files = sorted(folder.glob("datasets/*.yaml")) if folder else []
    return [f"recipes/datasets/{file.name}" for file in files]


def shipped_file(path: str) -> str:
    """The path of a file that a ready recipe names; ``recipes/...`` is found where only a wheel is installed, too."""
    home, parts = shipped_folder(), Path(path).parts
    if home is None or Path(path).exists() or parts[:1] != ("recipes",):
        return path
    file = home / Path(*parts[1:])
    return str(file) if file.is_file() else path


def commands_for(path: str, command: str) -> str:
    """The commands in a ready recipe's head that begin with ``command`` and make what it names; empty if none does."""
    for file in shipped().values():
        text = file.read_text(encoding="utf-8").replace(" \\\n#", "")
        commands = re.findall(rf"^#   ({re.escape(command)} .*)", text, re.MULTILINE)
        if commands and re.search(rf": {re.escape(path)}$", text, re.MULTILINE):
            return " and then ".join(f"`{' '.join(line.split())}`" for line in commands)
    return ""


def find(name: str, folder: Path, named_at: str = "", ready: Collection[str] | None = None) -> Path:
    """The file that ``name`` refers to: a path from ``folder``, or a ready recipe, with or without ``.yaml``.

    For the message: ``named_at`` is where the name is written, and ``ready`` what else could be named.
    """
    path = Path(name).expanduser()
    tries = [folder / path]
    if home := shipped_folder():
        # `recipes/quickstart.yaml`, as in a checkout, means the ready one where only a wheel is installed.
        below = Path(*path.parts[1:]) if path.parts[:1] == ("recipes",) else path
        tries += [home / path, home / below]
    for base in tries:
        for candidate in (base, base.with_name(f"{base.name}.yaml")):
            if candidate.is_file():
                return candidate
    nearby = [str(path.parent / file.name) for file in sorted((folder / path).parent.glob("*.yaml"))]
    names = list(dict.fromkeys([*nearby, *(shipped() if ready is None else ready)]))
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise RecipeError(
        (f"{named_at}: " if named_at else "")
        + f"unknown recipe {name}.{suggestion(name, names)}"
        + (f" There are: {listed}" if listed else "")
    )


def display(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
