"""Reading what scorers return, strictly: a value that is not a finite number would end up in a gradient."""

import math
import traceback
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

from aworld_train.errors import AworldTrainError
from aworld_train.reward.score_types import Score

_MAX_CHARS = 500  # of an exception's text


class BadResult(Exception):
    """A scorer returned something that is not a score; the message says what."""


def read_result(result: Any) -> Score:
    """A scorer's return value as a ``Score`` of plain floats; raises BadResult.

    It may be a finite number, a bool, a ``Score``, or a mapping with ``score`` and named numbers.
    """
    if isinstance(result, Score):
        value = None if result.value is None else _number(result.value, "a score")
        steps = tuple(str(step) for step in result.steps)
        return replace(result, value=value, parts=_parts(result.parts), steps=steps)
    if isinstance(result, Mapping):
        if "score" not in result:
            raise BadResult(f"it returned a mapping without 'score': {_short(sorted(map(str, result)))}")
        parts = {str(name): value for name, value in result.items() if name != "score"}
        score = result["score"]
        return Score(None if score is None else _number(score, "a score"), _parts(parts))
    return Score(_number(result, "a score"))


def describe(error: BaseException) -> str:
    if isinstance(error, AworldTrainError):
        return error.message
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return _short(text) + _location(error.__traceback__)


def _number(value: Any, role: str) -> float:
    if not isinstance(value, Real):
        raise BadResult(
            f"it returned {_short(value)}, of type {type(value).__name__}, as {role}, not a number"
        )
    try:
        number = float(value)
    except (OverflowError, ValueError, TypeError) as error:
        raise BadResult(f"it returned as {role} a number that is not a float: {error}") from error
    if not math.isfinite(number):
        raise BadResult(f"it returned {number} as {role}, not a finite number")
    return number


def _parts(parts: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _number(value, f"part {str(name)!r}") for name, value in parts.items()}


def _short(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = "something that cannot be shown"
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "..."


def _location(trace: TracebackType | None) -> str:
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
