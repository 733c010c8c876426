"""Code of one's own by where it is, ``module:name`` or ``path/file.py:name``: found, or refused in words.

Scorers, reward functions, sources of tasks and agents are all named like this, so that every process can load them.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from aworld_train.errors import AworldTrainError, UsageError, nearest

USER_DIRECTORY_VARIABLE = "AWORLD_TRAIN_USER_DIRECTORY"
"""The environment variable that names the user's working directory to processes that run in another one."""


def user_directory() -> str:
    """Where the user is."""
    return os.environ.get(USER_DIRECTORY_VARIABLE) or str(Path.cwd())


def find_user_modules() -> None:
    """Let modules in the user's directory be imported, after all that is installed.

    So a file there that is named like a library does not take its place.
    """
    directory = user_directory()
    if directory not in sys.path:
        sys.path.append(directory)


def load_own(spec: str, what: str, error: type[AworldTrainError] = UsageError) -> Callable[..., Any]:
    """The function or class that ``spec`` names; a file is run anew each time.

    Args:
        spec: ``module:name`` or ``path/file.py:name``; a relative path counts from the working directory, in which
            modules are looked for too, last.
        what: How messages call it, such as ``reward``.
        error: What is raised.

    Raises:
        AworldTrainError: ``error``: it cannot be found or imported, or cannot be called.
    """
    origin, name = own_parts(spec, what, error)
    find_user_modules()
    try:
        module = _run(origin) if isinstance(origin, Path) else importlib.import_module(origin)
    except _NoFile as missing:
        raise error(f"The {what} {spec!r}: {missing}.") from missing
    except (Exception, SystemExit) as raised:
        advice = ""
        if isinstance(raised, ModuleNotFoundError):
            advice = " Install it, or put its directory on PYTHONPATH."
        raise error(
            f"The {what} {spec!r}: importing {origin} failed with {type(raised).__name__}: {raised}.{advice}"
        ) from raised
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = nearest(name, known)
        meant = f" Did you mean {hint!r}?" if hint else ""
        raise error(f"The {what} {spec!r} names {name!r}, which is not in {origin}.{meant}")
    found = getattr(module, name)
    if not callable(found):
        raise error(f"The {what} {spec!r} is of type {type(found).__name__}, not a function.")
    return found  # type: ignore[no-any-return]


def own_parts(spec: str, what: str, error: type[AworldTrainError] = UsageError) -> tuple[Path | str, str]:
    """The file, as a whole path, or the module that ``spec`` names, and the name in it.

    Raises:
        AworldTrainError: ``error``: it is not of that form.
    """
    origin, colon, name = spec.rpartition(":") if isinstance(spec, str) else ("", "", "")
    if not (colon and origin and name.isidentifier()):
        raise error(f"The {what} {spec!r} is not of the form module:function or path/file.py:function.")
    if origin.endswith(".py"):
        return Path(origin).expanduser().resolve(), name
    if not all(part.isidentifier() for part in origin.split(".")):
        raise error(
            f"The {what} {spec!r}: {origin!r} is neither a module nor a path that ends with .py. "
            "Write path/file.py:function or package.module:function."
        )
    return origin, name


class _NoFile(Exception):
    """There is nothing to run; the message says so."""


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise _NoFile(f"there is no file {path}")
    # A name of its own, so that two files with the same stem do not meet.
    name = f"aworld_train_own_{abs(hash(str(path))):x}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise _NoFile(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(found)
    # Dataclasses look their module up there.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
