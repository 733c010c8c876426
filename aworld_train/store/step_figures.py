"""What the episodes of each step come to. It is kept until one of them changes, so no page reads all of a long run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, msgpack
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, and_, func, select, tuple_, update
from sqlalchemy.engine import Connection

from aworld_train.episode.figures import PerStep, per_step
from aworld_train.store import tables
from aworld_train.store.database import Database

_GROUPED = ("status", "outcome", "treatment", "scorer", "suspicions")
_MEANS = ("accuracy", *per_step(PerStep.mean))
_OPEN_STEPS = 2
"""The newest steps of a run, whose episodes change all the time: theirs are kept when the run is over."""


class EpisodeGroup(Struct, array_like=True, frozen=True):
    """The episodes of a step that have these values in common."""

    # Of ``_MEANS`` and the staleness, with the number of episodes that have each.
    sums: list[tuple[float, int]]
    status: str
    outcome: str | None
    treatment: str | None
    scorer: str | None
    suspicions: str | None
    episodes: int


class ToolUses(Struct, array_like=True, frozen=True):
    tool: str
    calls: int
    errors: int
    mean_seconds: float
    max_seconds: float


class StepFigures(Struct, array_like=True, frozen=True):
    """A step without the episodes that a resumed run has played again; another version may have kept other means."""

    groups: list[EpisodeGroup]
    tools: list[ToolUses]
    means: tuple[str, ...] = _MEANS


_DECODER = msgpack.Decoder(StepFigures)


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run's steps, in order of steps and phases."""

    by_step: Sequence[tuple[str, int, StepFigures]]

    def values(self, name: str) -> dict[str, int]:
        """The values of a column that episodes are grouped by, and tools' names as ``tool``, with their counts."""
        if name == "tool":
            return _counted((use.tool, use.calls) for _, _, step in self.by_step for use in step.tools)
        if name == "phase":
            return _counted((phase, count) for phase, _, count in self.steps())
        return _counted((getattr(group, name), group.episodes) for _, _, group in self._groups())

    def suspicions(self) -> dict[str, int]:
        """The signs of reward hacking that episodes show, with the numbers of episodes."""
        shown = self.values("suspicions").items()
        return _counted((sign, count) for names, count in shown for sign in names.strip(",").split(","))

    def steps(self) -> list[tuple[str, int, int]]:
        """Phase, step and number of episodes of every step."""
        return [(row["phase"], row["step"], row["episodes"]) for row in self.step_figures()]

    def step_figures(self) -> list[dict[str, Any]]:
        """By phase and step: number of episodes, and the means of their figures."""
        rows = []
        for phase, step, figures in self.by_step:
            if not figures.groups:
                continue
            columns = zip(*(group.sums for group in figures.groups), strict=True)
            totals = [tuple(map(sum, zip(*column, strict=True))) for column in columns]
            means = [total / count if count else None for total, count in totals]
            row = {"phase": phase, "step": step, "episodes": sum(group.episodes for group in figures.groups)}
            row["measured"] = totals[_MEANS.index("accuracy")][1]
            rows.append(row | dict(zip((*_MEANS, "staleness"), means, strict=True)))
        return rows

    def outcomes(self) -> list[tuple[str, int, str, int]]:
        """Phase, step, outcome and number of episodes; without episodes that still run."""
        counts: Counter[tuple[int, str, str]] = Counter()
        for phase, step, group in self._groups():
            if group.outcome is not None:
                counts[step, phase, group.outcome] += group.episodes
        return [(phase, step, outcome, count) for (step, phase, outcome), count in sorted(counts.items())]

    def tool_latencies(self) -> list[dict[str, Any]]:
        """By phase, step and tool: number of calls, errors, mean and longest seconds."""
        rows = [
            {"phase": phase, "step": step} | asdict(use)
            for phase, step, figures in self.by_step
            for use in figures.tools
        ]
        return sorted(rows, key=lambda row: (row["step"], row["tool"]))

    def _groups(self) -> Iterator[tuple[str, int, EpisodeGroup]]:
        return ((phase, step, group) for phase, step, each in self.by_step for group in each.groups)


def run_figures(connection: Connection, run: str) -> RunFigures:
    table = tables.steps.c
    query = select(table.phase, table.step, table.figures).where(table.run == run)
    by_step = []
    for phase, step, data in connection.execute(query.order_by(table.step, table.phase)).all():
        kept = None if data is None else _DECODER.decode(data)
        if kept is None or kept.means != _MEANS:
            kept = _computed(connection, run, phase, step)
        by_step.append((phase, step, kept))
    return RunFigures(by_step)


def mark_changed(connection: Connection, run: str, changed: ColumnElement[bool]) -> None:
    """Note that the run's episodes which meet a test change: what is kept of their steps holds no more.

    The test says whose run they are, unless it names episodes: for these SQLite would go through the whole run.
    """
    table, episode = tables.steps, tables.episodes.c
    steps = select(episode.phase, episode.step).where(changed)
    is_kept = and_(table.c.run == run, table.c.figures.is_not(None))
    connection.execute(
        update(table).where(is_kept, tuple_(table.c.phase, table.c.step).in_(steps)).values(figures=None)
    )


def keep_figures(database: Database, *, final: bool) -> None:
    """Keep the figures of steps that are over; with ``final`` of all."""
    table, run = tables.steps, database.location.run
    query = select(table.c.phase, table.c.step).where(table.c.run == run, table.c.figures.is_(None))
    if not final:
        newest = select(func.max(table.c.step)).where(table.c.run == run).scalar_subquery()
        query = query.where(table.c.step <= newest - _OPEN_STEPS)
    with database.begin() as connection:
        steps = connection.execute(query).all()
    for phase, step in steps:
        with database.begin() as connection:
            row = update(table).where(table.c.run == run, table.c.phase == phase, table.c.step == step)
            connection.execute(row.values(figures=None))  # who loads more of this step waits
            figures = _computed(connection, run, phase, step)
            connection.execute(row.values(figures=msgpack.encode(figures)))


def _computed(connection: Connection, run: str, phase: str, step: int) -> StepFigures:
    # Of expressions SQLite has no index: else it reads, in the order of another one, all episodes of the run.
    episode, tool = tables.episodes.c, tables.tool_calls.c
    tests = (episode.run == run, episode.phase == phase, episode.step == step)
    grouped = [episode[name] + "" for name in _GROUPED]
    figures = [*(episode[name] for name in _MEANS), episode.trained_step - 1 - episode.weights_first]
    sums = [each for figure in figures for each in (func.sum(figure), func.count(figure))]
    groups = connection.execute(select(*grouped, func.count(), *sums).where(*tests).group_by(*grouped)).all()
    errors = func.count().filter(tool.is_error)
    tools = connection.execute(
        select(tool.name, func.count(), errors, func.avg(tool.seconds), func.max(tool.seconds))
        .join(tables.episodes, episode.id == tool.episode)
        .where(*tests, episode.status != "superseded", episode.has_content)
        .group_by(tool.name)
    ).all()
    first = len(_GROUPED) + 1
    return StepFigures(
        [EpisodeGroup(_pairs(row[first:]), *row[:first]) for row in groups if row[0] != "superseded"],
        [ToolUses(*row) for row in tools],
    )


def _pairs(values: Sequence[Any]) -> list[tuple[float, int]]:
    return [(float(total or 0), count) for total, count in zip(values[::2], values[1::2], strict=True)]


def _counted(pairs: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for value, count in pairs:
        if value is not None:
            counts[value] += count
    return dict(sorted(counts.items()))
