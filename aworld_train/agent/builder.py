"""An agent that a function builds: ``module:function`` or ``file.py:function``.

The function is called once per episode, with nothing or with the episode's ``Surroundings``, and may be async. Its
module is imported once per process, in a thread, because frameworks take seconds to import.
"""

import asyncio
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from aworld_train.agent.in_process import run_built
from aworld_train.agent.logs import keep_logs_in, no_logs
from aworld_train.agent.task import AgentTask, Surroundings
from aworld_train.errors import UsageError, nearest

Builder = Callable[..., Any]

_loading = threading.Lock()
_loaded: dict[str, Builder] = {}


class BuilderAgent:
    """The agent that ``spec`` builds, anew for each episode."""

    def __init__(self, spec: str):
        self._spec = spec
        _parts(spec)

    async def run(self, task: AgentTask, surroundings: Surroundings) -> str:
        """As `Agent.run`."""

        async def build() -> Any:
            function = _loaded.get(self._spec)
            if function is None:
                keep_logs_in(surroundings.folder)
                function = await asyncio.to_thread(load_builder, self._spec)
            built = function(surroundings) if _takes_surroundings(self._spec, function) else function()
            return await built if inspect.isawaitable(built) else built

        return await run_built(build, task, surroundings, name=f"the builder {self._spec}")

    def check(self) -> None:
        """As `Agent.check`: imports the module."""
        with no_logs():
            _takes_surroundings(self._spec, load_builder(self._spec))


def load_builder(spec: str) -> Builder:
    """The function that ``spec`` names; relative paths count from the working directory.

    Raises:
        UsageError: it cannot be found or imported, or is no function.
    """
    with _loading:
        if spec not in _loaded:
            _loaded[spec] = _load(spec)
        return _loaded[spec]


def _load(spec: str) -> Builder:
    origin, name = _parts(spec)
    try:
        module = _file_module(spec, origin) if isinstance(origin, Path) else importlib.import_module(origin)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        advice = (
            " Install it, or put its directory on PYTHONPATH."
            if isinstance(error, ModuleNotFoundError)
            else ""
        )
        raise UsageError(
            f"The builder {spec!r}: importing {origin} failed with {type(error).__name__}: {error}.{advice}"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = nearest(name, known)
        meant = f" Did you mean {hint!r}?" if hint else ""
        raise UsageError(f"The builder {spec!r} names {name!r}, which is not in {origin}.{meant}")
    if not callable(function):
        raise UsageError(f"The builder {spec!r} is of type {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]


def _parts(spec: str) -> tuple[Path | str, str]:
    origin, colon, name = spec.rpartition(":") if isinstance(spec, str) else ("", "", "")
    if not (colon and origin and name.isidentifier()):
        raise UsageError(f"The builder {spec!r} is not of the form module:function or path/file.py:function.")
    if origin.endswith(".py"):
        return Path(origin).expanduser().resolve(), name
    if not all(part.isidentifier() for part in origin.split(".")):
        raise UsageError(
            f"The builder {spec!r}: {origin!r} is neither a module nor a path that ends with .py."
        )
    return origin, name


def _file_module(spec: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"The builder {spec!r}: there is no file {path}.")
    # A name of its own, so that two files with the same stem do not meet.
    name = f"aworld_train_builder_{abs(hash(str(path))):x}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"The builder {spec!r}: {path} cannot be imported.")
    module = importlib.util.module_from_spec(found)
    # Dataclasses look their module up there.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _takes_surroundings(spec: str, function: Builder) -> bool:
    """Whether the function wants the surroundings: it has a parameter that they can be given as."""
    signature = inspect.signature(function)
    for arguments in ((object(),), ()):
        try:
            signature.bind(*arguments)
            return bool(arguments)
        except TypeError:
            continue
    raise UsageError(
        f"The builder {spec!r} takes {signature}: write it without parameters, or with `surroundings` alone."
    )
