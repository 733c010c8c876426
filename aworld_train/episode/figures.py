"""The figures of an episode: its line in ``traces/episodes.jsonl``, and what store, metrics and page have of it.

Each figure stands here once, with its type and with where else it appears. What is made from that: the columns of the
store's table of episodes, the names that conditions and orders of lists have, the totals and means of a step in
``metrics.jsonl``, and the page's columns with their words. None stands for what an episode does not have.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from aworld_train.episode.branch_point import BranchPoint


class PerStep(StrEnum):
    """What a step's row of ``metrics.jsonl`` has of a figure: its sum, or its mean over episodes with a reward."""

    total = "total"
    mean = "mean"


@dataclass(frozen=True)
class Figure:
    """Where a figure appears beside the line.

    Its ``label`` is empty where the page does not show it as a figure, its ``unit`` (``seconds``, ``errors``) where it
    is a plain number. The page's list of episodes has a column of it if it ``is_listed``, the store's table if it
    ``has_column``. No list is sorted by one that ``is_text``.
    """

    label: str = ""
    is_listed: bool = False
    unit: str = ""
    per_step: PerStep | None = None
    has_column: bool = True
    is_text: bool = False


_TOTAL, _MEAN = PerStep.total, PerStep.mean
_Numbers = dict[str, float | bool | None]
_Counts = dict[str, int]


class EpisodeFigures(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of ``traces/episodes.jsonl``; docs/reference/run-folder.md says what its keys mean."""

    episode: str | None = None
    step: int = -1
    validate: bool = False
    index: int = -1
    seed: Annotated[int | None, Figure("seed", has_column=False)] = None
    outcome: Annotated[str | None, Figure()] = None
    treatment: Annotated[str | None, Figure()] = None
    turns: Annotated[int | None, Figure("turns", is_listed=True, per_step=_MEAN)] = None
    tool_calls: Annotated[int | None, Figure("tool calls", is_listed=True, per_step=_TOTAL)] = None
    tool_errors: Annotated[
        int | None, Figure("tool errors", is_listed=True, unit="errors", per_step=_TOTAL)
    ] = None
    rows: Annotated[int | None, Figure(per_step=_TOTAL)] = None
    prompt_tokens: Annotated[int | None, Figure("prompt tokens")] = None
    response_tokens: Annotated[int | None, Figure("response tokens", per_step=_MEAN)] = None
    sampled_tokens: Annotated[int | None, Figure("tokens sampled", is_listed=True)] = None
    unique_tokens: int | None = None
    given_tokens: int | None = None
    branches: Annotated[_Counts | None, Figure("branches", per_step=_TOTAL, has_column=False)] = None
    branch_points: list[BranchPoint] | None = None
    format_misses: Annotated[_Counts | None, Figure("format misses", per_step=_TOTAL, has_column=False)] = (
        None
    )
    undelivered: Annotated[int | None, Figure("undelivered", per_step=_TOTAL, has_column=False)] = None
    weights: tuple[int, int] | None = None
    agents: _Counts | None = None
    seconds: Annotated[float | None, Figure("time", is_listed=True, unit="seconds")] = None
    generate_seconds: Annotated[float | None, Figure("model time", unit="seconds")] = None
    tool_seconds: Annotated[float | None, Figure("tool time", unit="seconds", per_step=_TOTAL)] = None
    cause: Annotated[str | None, Figure(is_text=True)] = None
    refusal: str | None = None
    faults: Annotated[_Counts | None, Figure("requests sent again", has_column=False)] = None
    scorer: Annotated[str | None, Figure()] = None
    scoring: Annotated[str | None, Figure()] = None
    parts: Annotated[_Numbers | None, Figure()] = None
    extracted: str | None = None
    reward: Annotated[float | None, Figure(per_step=_MEAN)] = None
    scores: _Numbers | None = None
    suspicions: list[str] | None = None
    look: dict[str, str | None] | None = None
    retried: bool | None = None

    @property
    def accuracy(self) -> float | None:
        """The score, from 0 to 1; None if it could not be scored."""
        return (self.scores or {}).get("acc", self.reward)

    def line(self) -> dict[str, Any]:
        """The line as plain data: what is None is not there, but for the two keys that every played episode has."""
        values = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if self.turns is not None:
            values |= {"weights": self.weights, "cause": self.cause}
        if self.branch_points:
            values["branch_points"] = [msgspec.structs.asdict(point) for point in self.branch_points]
        plain: dict[str, Any] = msgspec.to_builtins(values)
        return plain


_decode = msgspec.json.Decoder(EpisodeFigures).decode


def read_figures(line: bytes) -> EpisodeFigures:
    """A line of ``traces/episodes.jsonl``; raises ValueError if it is not the line of an episode."""
    try:
        return _decode(line)
    except msgspec.DecodeError:
        return figures_of(
            json.loads(line)
        )  # NaN, which a scorer may return, and numbers that float64 cannot hold


def figures_of(plain: Any) -> EpisodeFigures:
    try:
        return msgspec.convert(plain, EpisodeFigures)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is not the line of an episode: {error}") from error


def _figures() -> Mapping[str, tuple[Figure, type]]:
    figures = {}
    for name, hint in get_type_hints(EpisodeFigures, include_extras=True).items():
        if get_origin(hint) is Annotated:
            value, figure = get_args(hint)
            kind = next(each for each in get_args(value) if each is not type(None))
            figures[name] = (figure, get_origin(kind) or kind)
    return figures


FIGURES = _figures()
COLUMNS: Mapping[str, type] = {name: kind for name, (figure, kind) in FIGURES.items() if figure.has_column}
"""The figures that are columns in the store, with their types."""


def per_step(form: PerStep, *, counts: bool = False) -> tuple[str, ...]:
    """The figures of which steps have this: numbers, or counts by kind."""
    return tuple(
        name
        for name, (figure, kind) in FIGURES.items()
        if figure.per_step is form and (kind is dict) is counts
    )


def shown_figures() -> list[dict[str, Any]]:
    return [
        {"name": name, "label": figure.label, "unit": figure.unit, "is_listed": figure.is_listed}
        for name, (figure, _) in FIGURES.items()
        if figure.label
    ]
