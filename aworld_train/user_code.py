"""User-defined code by its location, ``module:name`` or ``path/file.py:name``: loaded, or refused with a clear message.

A script that starts a training may define it too. Loading it then runs the script again, with the same arguments, up to
the place where it would start the training (`stop_if_loading`).
"""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from aworld_train.errors import AworldTrainError, UsageError, suggestion

USER_DIRECTORY_VARIABLE = "AWORLD_TRAIN_USER_DIRECTORY"
"""The environment variable that names the user's working directory to processes that run in another one."""

_ARGUMENTS_VARIABLE = "AWORLD_TRAIN_USER_ARGUMENTS"
_loading: ContextVar[bool] = ContextVar("loading_user_code", default=False)


class _StartsTraining(BaseException):
    """A module that is being loaded has come to the place where it starts a training."""


def stop_if_loading() -> None:
    """End the loading of user code here, if that is under way: what follows belongs to the program it is part of."""
    if _loading.get():
        raise _StartsTraining


def user_variables() -> dict[str, str]:
    return {USER_DIRECTORY_VARIABLE: str(Path.cwd()), _ARGUMENTS_VARIABLE: json.dumps(sys.argv)}


def user_directory() -> str:
    return os.environ.get(USER_DIRECTORY_VARIABLE) or str(Path.cwd())


def find_user_modules() -> None:
    """Make modules in the user's directory importable; last, so that none replaces an installed one."""
    directory = user_directory()
    if directory not in sys.path:
        sys.path.append(directory)


def load_user_code(spec: str, role: str, error: type[AworldTrainError] = UsageError) -> Callable[..., Any]:
    """The function or class that ``spec`` names, which messages call ``role``; a file is run again at each call."""
    origin, name = user_code_location(spec, role, error)
    if isinstance(origin, Path) and not origin.is_file():
        raise error(f"The {role} {spec!r}: no such file: {origin}.")
    find_user_modules()
    try:
        module = _run(origin) if isinstance(origin, Path) else _imported(origin)
    except (Exception, SystemExit) as raised:
        advice = ""
        if isinstance(raised, ModuleNotFoundError):
            advice = " Install it, or put its directory on PYTHONPATH."
        raise error(
            f"The {role} {spec!r}: importing {origin} failed with {type(raised).__name__}: {raised}.{advice}"
        ) from raised
    if not hasattr(module, name):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = suggestion(name, names)
        raise error(f"The {role} {spec!r} names {name!r}, which is not in {origin}.{hint}")
    function = getattr(module, name)
    if not callable(function):
        raise error(f"The {role} {spec!r} is of type {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]


def user_code_location(
    spec: str, role: str, error: type[AworldTrainError] = UsageError
) -> tuple[Path | str, str]:
    """The file, as an absolute path, or the module that ``spec`` names, and the name in it."""
    origin, colon, name = spec.rpartition(":") if isinstance(spec, str) else ("", "", "")
    if not (colon and origin and name.isidentifier()):
        raise error(f"The {role} {spec!r} is not of the form module:function or path/file.py:function.")
    if origin.endswith(".py"):
        return Path(origin).expanduser().resolve(), name
    if not all(part.isidentifier() for part in origin.split(".")):
        raise error(
            f"The {role} {spec!r}: {origin!r} is neither a module nor a path that ends with .py. "
            "Write path/file.py:function or package.module:function."
        )
    return origin, name


def _imported(name: str) -> ModuleType:
    token = _loading.set(True)
    try:
        spec = importlib.util.find_spec(name)
        file = Path(spec.origin).resolve() if spec is not None and spec.origin else Path()
        with _arguments_of(file):
            return importlib.import_module(name)
    except _StartsTraining:
        # Python forgets a module whose import ends early; the same file, run by itself, stays.
        return _run(file)
    finally:
        _loading.reset(token)


def _run(path: Path) -> ModuleType:
    # Named by the path, so that two files with the same stem are two modules.
    name = f"aworld_train_user_code_{abs(hash(str(path))):x}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None  # as its name ends with .py
    module = importlib.util.module_from_spec(module_spec)
    # Dataclasses look up their module in sys.modules.
    sys.modules[name] = module
    token = _loading.set(True)
    try:
        with _arguments_of(path):
            module_spec.loader.exec_module(module)
    except _StartsTraining:
        pass
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _loading.reset(token)
    return module


@contextmanager
def _arguments_of(path: Path) -> Iterator[None]:
    """In this block ``sys.argv`` is that of the program that began the run, if ``path`` is that program."""
    program = json.loads(os.environ.get(_ARGUMENTS_VARIABLE, "[]"))
    if not program or Path(user_directory(), program[0]).resolve() != path:
        yield
        return
    own, sys.argv = sys.argv, program
    try:
        yield
    finally:
        sys.argv = own
