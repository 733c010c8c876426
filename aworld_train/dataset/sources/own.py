"""A source of one's own, named ``module:function`` or ``path/to/file.py:function``."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from aworld_train.errors import UsageError, nearest

if TYPE_CHECKING:
    from aworld_train.dataset.sources import Source


def load_source(spec: str) -> "Source":
    """The function that ``spec`` names; a relative path counts from the working directory.

    Raises:
        UsageError: It cannot be found or imported, or is no function.
    """
    origin, _, name = spec.rpartition(":")
    module = _load_file(spec, Path(origin).expanduser()) if origin.endswith(".py") else _load_module(spec, origin)
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = nearest(name, known)
        raise UsageError(
            f"The source {spec!r}: {origin} has no {name!r}." + (f" Did you mean {hint!r}?" if hint else "")
        )
    if not callable(function):
        raise UsageError(f"The source {spec!r} is of type {type(function).__name__}, not a function.")
    return cast("Source", function)


def _load_file(spec: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"The source {spec!r}: there is no file {path}.")
    found = importlib.util.spec_from_file_location(f"source_file_{path.stem}", path)
    if found is None or found.loader is None:
        raise UsageError(f"The source {spec!r}: {path} cannot be imported.")
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(_import_message(spec, str(path), error)) from error
    return module


def _load_module(spec: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UsageError(_import_message(spec, name, error)) from error


def _import_message(spec: str, origin: str, error: BaseException) -> str:
    message = f"The source {spec!r}: importing {origin} failed with {type(error).__name__}: {error}."
    if isinstance(error, ModuleNotFoundError):
        message += " Install it, or put its directory on PYTHONPATH."
    return message
