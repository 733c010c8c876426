"""Scorers by name: the built-in ones, those that code registered, and the user's own by their location.

A scorer takes the answer, the ground truth and, if it has a third parameter, a ``ScoringContext``; it may be async. A
built-in scorer is imported at its first use. A name given with ``register_scorer`` is known only in processes that
imported the module which registers it, so rows and recipes name such a scorer by its ``reference``, ``module:function``
or ``path/file.py:function``, which every process can load.
"""

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from aworld_train.errors import RewardError, ScorerNotFound, suggestion
from aworld_train.reward.loading import absolute_reference, load_function, name_reward
from aworld_train.reward.settings import ALIASES

CODE_TESTS = "code_tests"
"""The scorer that runs answers, and so needs workers of the tool environment for scoring."""
BUILT_IN = {
    "number": "aworld_train.reward.number:number",
    "gaia": "aworld_train.reward.gaia:gaia",
    "math": "aworld_train.reward.math:math",
    "exact": "aworld_train.reward.texts:exact",
    "exact_case": "aworld_train.reward.texts:exact_case",
    "f1": "aworld_train.reward.texts:f1",
    "contains": "aworld_train.reward.texts:contains",
    CODE_TESTS: "aworld_train.reward.code_tests:code_tests",
    "llm_judge": "aworld_train.reward.judge.scorer:llm_judge",
    "composite": "aworld_train.reward.composite:composite",
}

COMPARING = frozenset({"number", "gaia", "math", "exact", "exact_case", "f1", "contains"})
"""Built-in scorers that compare an answer with the ground truth, at no cost: their equality is that of answers too."""

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


class ScorerKind(StrEnum):
    """What a reference names, and so how a process that loads it makes a ``Scorer`` of it."""

    scorer = "scorer"
    """A function of (answer, ground truth) or (answer, ground truth, context), found by ``find_scorer``."""
    reward_function = "reward_function"
    """A function with the keyword signature of reward functions, found by ``reward_function_scorer``."""


@dataclass(frozen=True)
class Scorer:
    """A scorer and how it is called.

    Attributes:
        reference: What any process finds it by: a built-in name, ``module:function`` or ``/path/file.py:function``.
        arguments: 2 (answer, ground truth) or 3 (and the context).
        isolated: Whether it runs in a worker process, which is killed when it takes too long.
        scores_missing_answers: Whether it is also called, with None, for an episode without an answer.
        delegates: Whether it calls other scorers, which have the time limit, and so has none itself.
        takes_references: Whether it is called once with all the references of a task, a line each.
        prepare: Called by a worker process before the first answer, outside the time limit.
        max_processor_seconds: How long it may compute for an answer, within the run's time limit.
    """

    name: str
    reference: str
    function: Callable[..., Any]
    arguments: int
    is_async: bool
    isolated: bool = False
    scores_missing_answers: bool = False
    delegates: bool = False
    takes_references: bool = False
    prepare: Callable[[], object] | None = None
    max_processor_seconds: float = math.inf
    kind: ScorerKind = ScorerKind.scorer


_registered: dict[str, Scorer] = {}
_found: dict[str, Scorer] = {}


def register_scorer(
    name: str,
    *,
    isolated: bool = False,
    scores_missing_answers: bool = False,
    delegates: bool = False,
    takes_references: bool = False,
    prepare: Callable[[], object] | None = None,
    max_processor_seconds: float = math.inf,
) -> Callable[[_FunctionT], _FunctionT]:
    """Decorator that gives a scorer a name in this process; the arguments are those of ``Scorer``.

    User-defined scorers always run in worker processes, whatever ``isolated`` is.
    """

    def register(function: _FunctionT) -> _FunctionT:
        location = f"{function.__module__}:{function.__qualname__}"
        if not name or ":" in name:
            raise RewardError(f"The scorer {location} cannot be called {name!r}: a name has no colon.")
        existing = _registered.get(name)
        owner = BUILT_IN.get(name)
        if owner is None and existing is not None and _origin(existing.function) != _origin(function):
            owner = existing.reference
        if owner not in (None, location):
            raise RewardError(
                f"The scorer {location} cannot be called {name!r}: that is {owner}. Choose another name."
            )
        _found.pop(name, None)
        _registered[name] = replace(
            _scorer(name, location, function),
            isolated=isolated,
            scores_missing_answers=scores_missing_answers,
            delegates=delegates,
            takes_references=takes_references,
            prepare=prepare,
            max_processor_seconds=max_processor_seconds,
        )
        return function

    return register


def _scorer(name: str, reference: str, function: Callable[..., Any]) -> Scorer:
    return Scorer(name, reference, function, count_arguments(reference, function), is_async(function))


def scorer_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*BUILT_IN, *_registered, *ALIASES)))


def find_scorer(name: str) -> Scorer:
    """The scorer of this name, or a function as ``module:function`` or ``file.py:function`` from the working folder."""
    name = ALIASES.get(name, name)
    if name not in _found:
        _found[name] = _find(name)
    return _found[name]


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object whose call is async)
    )


def count_arguments(label: str, function: Callable[..., Any]) -> int:
    """How many positional arguments a scorer is called with: three if it can take as many, else two."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise RewardError(f"The scorer {label}: its signature cannot be determined: {error}.") from error
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise RewardError(
        f"The scorer {label} cannot be called with (answer, ground_truth) nor with (answer, ground_truth, context): "
        f"it is declared {getattr(function, '__name__', 'score')}{signature}."
    )


def _find(name: str) -> Scorer:
    if name in BUILT_IN:
        return _built_in(name)
    if name in _registered:
        return _user_defined(_registered[name], name, name_reward(_registered[name].function))
    for built_in_name, reference in BUILT_IN.items():
        if reference == name:
            return _built_in(built_in_name)
    if ":" in name:
        function = load_function(name)
        reference = absolute_reference(name)
        registered = (scorer for scorer in _registered.values() if scorer.function is function)
        scorer = next(registered, None) or _scorer(name, reference, function)
        return _user_defined(scorer, name, reference)
    names = scorer_names()
    raise ScorerNotFound(
        f"Unknown scorer {name!r}.{suggestion(name, names)} The scorers are {', '.join(names)}; name "
        "a user-defined one by module:function or path/file.py:function."
    )


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """File and name of a function: the running program gets a second module name when it is loaded by its path."""
    return inspect.getsourcefile(function) or function.__module__, function.__qualname__


def _built_in(name: str) -> Scorer:
    module, _, attribute = BUILT_IN[name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    return replace(_registered.get(name) or _scorer(name, name, function), reference=name)


def _user_defined(scorer: Scorer, name: str, reference: str) -> Scorer:
    """A user-defined scorer; always isolated, because its code may hang or crash."""
    return replace(
        scorer, name=name, reference=reference, isolated=True, delegates=False, takes_references=False
    )
