"""Scorers by name: the built-in ones, those that code registered, and one's own by where they are.

A scorer takes the answer, the ground truth and, if it has a third argument, a ``ScoringContext``; it is a plain
function or an async one. A built-in one is imported when it is first asked for. One's own is named by
``module:function`` or ``path/file.py:function``, which every process can load. A name given with ``register_scorer`` is
known only in processes that imported the module which gives it: VeRL's workers and ``recipe check`` are others, so rows
and recipes name such a scorer by its ``reference``.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from aworld_train.errors import RewardError, nearest
from aworld_train.reward.loading import load_function, load_reward
from aworld_train.reward.naming import name_reward

CODE_TESTS = "code_tests"
"""The scorer that runs answers, and so needs workers of the tool environment for scoring."""
BUILT_IN = {
    "number": "aworld_train.reward.number:number",
    "gaia": "aworld_train.reward.gaia:gaia",
    "math": "aworld_train.reward.math:math",
    "exact": "aworld_train.reward.texts:exact",
    "f1": "aworld_train.reward.texts:f1",
    "contains": "aworld_train.reward.texts:contains",
    CODE_TESTS: "aworld_train.reward.code_tests:code_tests",
    "llm_judge": "aworld_train.reward.judge:llm_judge",
    "composite": "aworld_train.reward.composite:composite",
}
"""Where each built-in scorer is; its module may say more of it with ``register_scorer``."""
AS_VERL = "verl's "
"""Before ``module:function`` or ``file.py:function``: a function that is called as verl calls rewards."""

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True)
class Scorer:
    """A scorer and how it is called.

    Attributes:
        name: What rows call it.
        reference: Under what every process finds it: the name of a built-in one, else ``module:function`` or
            ``/path/file.py:function``.
        function: The function.
        arguments: 2 (answer, ground truth) or 3 (and the context).
        is_async: Whether it has to be awaited.
        isolated: Whether it runs in a worker process, which is ended when it takes too long.
        wants_no_answer: Whether it is asked where there is no answer too, with None.
        delegates: Whether it asks other scorers, which have the time limit, and so has none itself.
        prepare: What a worker process calls before the first answer; not within the time limit.
    """

    name: str
    reference: str
    function: Callable[..., Any]
    arguments: int
    is_async: bool
    isolated: bool
    wants_no_answer: bool = False
    delegates: bool = False
    prepare: Callable[[], object] | None = None


@dataclass(frozen=True)
class _Registered:
    function: Callable[..., Any]
    isolated: bool
    wants_no_answer: bool
    delegates: bool
    prepare: Callable[[], object] | None


_registered: dict[str, _Registered] = {}
_found: dict[str, Scorer] = {}


def register_scorer(
    name: str,
    *,
    isolated: bool = False,
    wants_no_answer: bool = False,
    delegates: bool = False,
    prepare: Callable[[], object] | None = None,
) -> Callable[[_FunctionT], _FunctionT]:
    """Decorator that gives a scorer a name in this process.

    One's own scorers run in worker processes whatever ``isolated`` says; the other arguments are those of ``Scorer``.

    Raises:
        RewardError: The name is a built-in scorer's, is another function's, or holds a colon.
    """

    def register(function: _FunctionT) -> _FunctionT:
        here = f"{function.__module__}:{function.__qualname__}"
        if not name or ":" in name:
            raise RewardError(f"The scorer {here} cannot be called {name!r}: a name has no colon.")
        known = _registered.get(name)
        taken = BUILT_IN.get(name)
        if taken is None and known is not None and _origin(known.function) != _origin(function):
            taken = f"{known.function.__module__}:{known.function.__qualname__}"
        if taken not in (None, here):
            raise RewardError(
                f"The scorer {here} cannot be called {name!r}: that is {taken}. Choose another name."
            )
        _arguments(here, function)
        _found.pop(name, None)
        _registered[name] = _Registered(function, isolated, wants_no_answer, delegates, prepare)
        return function

    return register


def scorer_names() -> tuple[str, ...]:
    """The built-in scorers, and those registered in this process."""
    return tuple(dict.fromkeys((*BUILT_IN, *_registered)))


def find_scorer(name: str) -> Scorer:
    """The scorer of this name, or the function that ``module:function`` or ``path/file.py:function`` names.

    A relative path counts from the working directory.

    Raises:
        RewardError: There is none, it cannot be imported, or it does not take two or three arguments.
    """
    if name not in _found:
        _found[name] = _find(name)
    return _found[name]


def _find(name: str) -> Scorer:
    if name in BUILT_IN:
        return _built_in(name)
    if name.startswith(AS_VERL):
        return _called_as_verl(name)
    if name in _registered:
        reference = name_reward(_registered[name].function)
        return _scorer(name, reference, _registered[name])
    for short, reference in BUILT_IN.items():
        if reference == name:
            return _built_in(short)
    if ":" in name:
        function = load_function(name)
        origin, _, attribute = name.rpartition(":")
        reference = f"{Path(origin).expanduser().resolve()}:{attribute}" if origin.endswith(".py") else name
        for registered in _registered.values():
            if registered.function is function:
                return _scorer(name, reference, registered)
        return _scorer(name, reference, _Registered(function, True, False, False, None))
    known = scorer_names()
    hint = nearest(name, known)
    meant = f" Did you mean {hint!r}?" if hint else ""
    raise RewardError(
        f"There is no scorer {name!r}.{meant} The scorers are {', '.join(known)}; one's own is named by "
        "module:function or path/file.py:function."
    )


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """File and name: a program's own file is loaded again, under another module name, where it is named by its path."""
    return inspect.getsourcefile(function) or function.__module__, function.__qualname__


def _built_in(name: str) -> Scorer:
    module, _, attribute = BUILT_IN[name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    said = _registered.get(name) or _Registered(function, False, False, False, None)
    return Scorer(
        name=name,
        reference=name,
        function=said.function,
        arguments=_arguments(name, said.function),
        is_async=_is_async(said.function),
        isolated=said.isolated,
        wants_no_answer=said.wants_no_answer,
        delegates=said.delegates,
        prepare=said.prepare,
    )


def _scorer(name: str, reference: str, said: _Registered) -> Scorer:
    """One's own: always isolated, since nobody knows what it does."""
    return Scorer(
        name=name,
        reference=reference,
        function=said.function,
        arguments=_arguments(reference, said.function),
        is_async=_is_async(said.function),
        isolated=True,
        wants_no_answer=said.wants_no_answer,
        delegates=False,
        prepare=said.prepare,
    )


def _called_as_verl(name: str) -> Scorer:
    from aworld_train.reward.reward_function import as_scorer

    function = load_reward(name.removeprefix(AS_VERL))
    said = _Registered(as_scorer(function), True, False, False, None)
    return replace(_scorer(name, name, said), is_async=_is_async(function))


def _arguments(named: str, function: Callable[..., Any]) -> int:
    """How many arguments it is called with: three if it can take as many.

    Raises:
        RewardError: It can be called neither with two nor with three.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise RewardError(f"The scorer {named}: its arguments are not to be found out: {error}.") from error
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise RewardError(
        f"The scorer {named} cannot be called with (answer, ground_truth) nor with (answer, ground_truth, context): "
        f"it is declared {getattr(function, '__name__', 'score')}{signature}."
    )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object whose call is async)
    )
