"""Reads the store of a run: lists of episodes, one episode with everything, tasks, and rows that were trained on."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, Self

from msgspec.structs import replace as changed
from sqlalchemy import ColumnElement, FromClause, Select, and_, func, select
from sqlalchemy.engine import Connection
from sqlalchemy.sql import visitors

from aworld_train.episode.figures import COLUMNS, FIGURES, EpisodeFigures, figures_of
from aworld_train.errors import UsageError
from aworld_train.store import tables
from aworld_train.store.compression import decompressed
from aworld_train.store.conditions import contains_text, where
from aworld_train.store.content import (
    EpisodeContent,
    StoredNode,
    decoded_content,
    decoded_node,
    unpacked_floats,
)
from aworld_train.store.database import Database
from aworld_train.store.step_figures import RunFigures, run_figures
from aworld_train.store.store_location import StoreLocation

ReadBlob = Callable[[str], bytes | None]
"""Reads a blob by its digest; None where it is missing."""
_ROWS_AT_ONCE = 1000
_EPISODES_AT_ONCE = 50
_MAX_COUNTED = 10_000
MAX_SEARCHED = 10_000
"""Of how many of the newest episodes a bounded search reads the texts."""
_HIDDEN = ("figures", "key", "run", "spans_sent", "task_index")
"""Columns of ``tables.episodes`` that are not in an episode's head."""
_SORTED_FIGURES = [
    name for name, kind in COLUMNS.items() if kind is not dict and not FIGURES[name][0].is_text
]
SORTS: Mapping[str, Any] = {
    name: tables.episodes.c[name] for name in ("began", "step", "accuracy", "advantage", *_SORTED_FIGURES)
} | {"index": tables.episodes.c.task_index}


@dataclass(frozen=True)
class EpisodeHead:
    """An episode, as a list shows it, with times in Unix time; ``advantage`` is the mean over its trained tokens."""

    id: str
    task: str
    index: int
    source: str
    question: str
    correct_answer: str
    status: str
    step: int
    phase: str
    attempt: int
    began: float
    ended: float | None
    accuracy: float | None
    trained_step: int | None
    advantage: float | None
    has_content: bool
    figures: EpisodeFigures

    def to_json(self) -> dict[str, Any]:
        first, last = self.figures.weights or (None, None)
        return (
            {name: getattr(self, name) for name in _HEAD_FIELDS}
            | {name: getattr(self.figures, name) for name in COLUMNS}
            | {"weights_first": first, "weights_last": last, "suspicions": self.figures.suspicions or []}
        )


_HEAD_FIELDS = tuple(field.name for field in fields(EpisodeHead) if field.name != "figures")


@dataclass(frozen=True)
class RowUse:
    """How training used a row of an episode (see ``TrainedRow``); None where no step trained on it."""

    trained_step: int | None = None
    position: int | None = None
    masked_in: int | None = None
    advantage: float | None = None
    advantages: Sequence[float] = ()


@dataclass(frozen=True)
class StoredEpisode:
    """An episode with everything that is kept of it.

    One that has not ended has no ``figures``; ``tools`` are schemas by digest, as the model calls name them. Nodes of
    the ``content`` that the episode shares with others are filled in.
    """

    head: EpisodeHead
    figures: EpisodeFigures
    task_row: Mapping[str, Any] = field(repr=False)
    content: EpisodeContent | None = field(repr=False)
    rows: Sequence[RowUse]
    tools: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class EpisodeKey:
    id: str
    task: str
    attempt: int
    began: float
    ended: float


@dataclass(frozen=True)
class TaskKey:
    id: str
    index: int
    source: str
    question: str
    answer: str


@dataclass(frozen=True)
class TaskHead:
    id: str
    index: int
    source: str
    scorer: str
    question: str
    answer: str
    episodes: int
    mean_reward: float | None
    last_step: int


class Store:
    """The store of one run, open for reading: ``with Store(location) as store: store.episodes()``."""

    def __init__(self, location: StoreLocation):
        self.location = location
        self._database = Database(location, read_only=location.url is None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def count(self, condition: str = "", *, search: str = "", superseded: bool = False) -> int:
        """The number of episodes that meet a condition (see ``conditions``) and contain a text."""
        query = self._matching(select(func.count()), self._tests(condition, search, superseded))
        return int(self._rows(query, search)[0][0])

    def search_begin(self, condition: str = "", *, superseded: bool = False) -> float | None:
        """When the newest episode began that a bounded search does not read; None where it reads all."""
        began = tables.episodes.c.began
        newest = self._matching(select(began), self._tests(condition, "", superseded)).order_by(began.desc())
        return next((row.began for row in self._rows(newest.offset(MAX_SEARCHED).limit(1))), None)

    def bounded_count(
        self, condition: str = "", *, search: str = "", superseded: bool = False, since: float | None = None
    ) -> tuple[int, bool]:
        """As ``count`` of the episodes that began after ``since``, but no more than takes a moment are counted.

        The second value is whether there may be more.
        """
        tests = self._tests(condition, search, superseded, since)
        found = self._matching(select(tables.episodes.c.id), tests).limit(_MAX_COUNTED + 1).subquery()
        number = int(self._rows(select(func.count()).select_from(found), search)[0][0])
        return min(number, _MAX_COUNTED), since is not None or number > _MAX_COUNTED

    def ids(
        self,
        condition: str = "",
        *,
        search: str = "",
        superseded: bool = False,
        sort: str = "began",
        descending: bool = False,
    ) -> list[str]:
        query = self._sorted_ids(self._tests(condition, search, superseded), sort, descending)
        return [row.id for row in self._rows(query)]

    def episodes(
        self,
        condition: str = "",
        *,
        search: str = "",
        superseded: bool = False,
        sort: str = "began",
        descending: bool = False,
        limit: int | None = None,
        offset: int = 0,
        since: float | None = None,
    ) -> list[EpisodeHead]:
        """The episodes that meet a condition (see ``conditions``) and contain a text, sorted by one of ``SORTS``.

        With ``since`` only those that began after it.
        """
        # What is sorted are ids: only the episodes of a page are read as a whole.
        ids = self._sorted_ids(self._tests(condition, search, superseded, since), sort, descending)
        page = ids.limit(limit).offset(offset).subquery("page")
        query = self._joined(_head_query(), page).order_by(*_order(sort, descending))
        return [_head(row) for row in self._records(query, search)]

    def figures(self) -> RunFigures:
        with self._database.begin() as connection:
            return run_figures(connection, self.location.run)

    def tasks(self, *, limit: int | None = None, offset: int = 0) -> list[TaskHead]:
        task, episode = tables.tasks.c, tables.episodes.c
        is_played = and_(*self._tests("", "", False), episode.task == task.id)
        # One by one, so that SQLite reads the episodes of a page's tasks alone.
        figures = [
            select(figure).where(is_played).scalar_subquery().label(name)
            for name, figure in (
                ("episodes", func.count()),
                ("mean_reward", func.avg(episode.reward)),
                ("last_step", func.max(episode.step)),
            )
        ]
        query = (
            select(task.id, task.index, task.source, task.scorer, task.question, task.answer, *figures)
            .where(task.run == self.location.run, select(episode.task).where(is_played).exists())
            .order_by(task.source, task.index, task.id)
            .limit(limit)
            .offset(offset)
        )
        return [TaskHead(**row) for row in self._records(query)]

    def ended_figures(self, phase: str) -> Iterator[tuple[EpisodeKey, EpisodeFigures]]:
        """The episodes of a phase that have ended, in order of their begin, without those that were played again."""
        columns = tables.episodes.c
        query = (
            select(columns.id, columns.task, columns.attempt, columns.began, columns.ended, columns.figures)
            .where(columns.run == self.location.run, columns.phase == phase, columns.status == "ended")
            .order_by(columns.began, columns.id)
        )
        with self._database.begin() as connection:
            for *key, figures in connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query):
                yield EpisodeKey(*key), figures_of(figures or {})

    def task_rows(self) -> Iterator[tuple[TaskKey, dict[str, Any]]]:
        """The tasks, in the order of the dataset: which they are, and their dataset's rows."""
        columns = tables.tasks.c
        query = (
            select(columns.id, columns.index, columns.source, columns.question, columns.answer, columns.row)
            .where(columns.run == self.location.run)
            .order_by(columns.source, columns.index, columns.id)
        )
        with self._database.begin() as connection:
            for *key, row in connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query):
                yield TaskKey(*key), json.loads(decompressed(row))

    def outline(self) -> list[tuple[str, str, int, str, float | None]]:
        """Id, phase, step, outcome and accuracy of all episodes that have ended, in order of steps and ids."""
        columns = tables.episodes.c
        query = (
            select(columns.id, columns.phase, columns.step, columns.outcome, columns.accuracy)
            .where(
                columns.run == self.location.run,
                columns.status.in_(("ended", "lost")),
                columns.outcome.is_not(None),
            )
            .order_by(columns.step, columns.id)
        )
        return [tuple(row) for row in self._rows(query)]

    def newest(self) -> tuple[int, float | None, float | None]:
        """Number of episodes, and when the last one began and ended: what changes while a run continues."""
        columns = tables.episodes.c
        query = select(func.count(), func.max(columns.began), func.max(columns.ended)).where(
            columns.run == self.location.run
        )
        [(count, began, ended)] = self._rows(query)
        return int(count), began, ended

    def episode(self, name: str) -> StoredEpisode:
        """An episode with everything, by its id or a beginning of it that no other has."""
        columns = tables.episodes.c
        with self._database.begin() as connection:
            query = self._joined(_head_query(columns.figures)).where(columns.run == self.location.run)
            # A whole id is found by its key; the beginning of one is looked for among all.
            rows = list(connection.execute(query.where(columns.id == name)).mappings())
            if not rows and name:
                beginning = columns.id.startswith(name, autoescape=True)
                rows = list(connection.execute(query.where(beginning).limit(2)).mappings())
            if len(rows) != 1:
                reason = "Several episodes begin with" if rows else "Unknown episode"
                raise UsageError(
                    f"{reason} {name!r} in {self.location.folder.parent}. `runs episodes` lists them."
                )
            return self._whole(connection, [dict(rows[0])])[0]

    def whole_episodes(self, ids: Sequence[str]) -> Iterator[StoredEpisode]:
        """The episodes with these ids and everything, in their order; those that do not exist are left out.

        Some are read at a time, which takes a fraction of the time that they take one by one.
        """
        columns = tables.episodes.c
        # Whose run they are is looked at here: SQLite would go through all episodes of the run to find these.
        found = self._joined(_head_query(columns.figures, columns.run))
        for begin in range(0, len(ids), _EPISODES_AT_ONCE):
            batch = ids[begin : begin + _EPISODES_AT_ONCE]
            with self._database.begin() as connection:
                if self._database.is_sqlite:  # what is read once and mapped would stay in memory
                    connection.exec_driver_sql("PRAGMA mmap_size=0")
                rows = connection.execute(found.where(columns.id.in_(batch))).mappings()
                by_id = {row["id"]: dict(row) for row in rows if row["run"] == self.location.run}
                ordered = [by_id[episode] for episode in batch if episode in by_id]
                episodes = self._whole(connection, ordered)
            yield from episodes

    def blob(self, digest: str) -> bytes | None:
        """The bytes of a blob, such as the file of an image; None where it is missing."""
        with self._database.begin() as connection:
            return self._database.blob(connection, digest)

    def trained_row(self, step: int, position: int) -> tuple[StoredEpisode, int]:
        """The row at a position of a step's batch: its episode, and its number among the episode's rows."""
        columns = tables.rows.c
        query = (
            select(columns.episode, columns.number)
            .join(tables.episodes, tables.episodes.c.id == columns.episode)
            .where(
                tables.episodes.c.run == self.location.run,
                tables.episodes.c.status == "ended",
                columns.trained_step == step,
            )
        )
        with self._database.begin() as connection:
            row = connection.execute(query.where(columns.position == position)).first()
            if row is None:
                count = connection.execute(select(func.count()).select_from(query.subquery())).scalar_one()
                raise UsageError(
                    f"Step {step} of {self.location.name} trained on {count} rows whose episodes are kept, and row "
                    f"{position} is none of them. The first row is 0."
                )
        return self.episode(row.episode), int(row.number)

    def _rows(self, query: Any, searched: str = "") -> Sequence[Any]:
        with self._database.begin() as connection:
            rows = connection.execute(query).all()
            if searched.strip():
                self._database.release_mapped(connection)
            return rows

    def _records(self, query: Any, searched: str = "") -> list[dict[str, Any]]:
        return [dict(row._mapping) for row in self._rows(query, searched)]

    def _whole(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> list[StoredEpisode]:
        """Episodes whose heads and figures were read, with all the rest; what they share is read once."""
        ids = [row["id"] for row in rows]
        read_blob = cache(partial(self._database.blob, connection))
        contents = _contents(connection, ids, read_blob)
        uses = _row_uses(connection, ids)
        task_rows = self._task_rows(connection, {row["task"] for row in rows})
        episodes = []
        for row in rows:
            figures = figures_of(row.pop("figures") or {})
            head = _head(row)
            content = contents.get(head.id)
            episodes.append(
                StoredEpisode(
                    head,
                    figures,
                    task_rows[head.task],
                    content,
                    uses.get(head.id, []),
                    _tools(content, read_blob),
                )
            )
        return episodes

    def _task_rows(self, connection: Connection, tasks: Iterable[str]) -> dict[str, dict[str, Any]]:
        table = tables.tasks.c
        query = select(table.id, table.row).where(table.run == self.location.run, table.id.in_(list(tasks)))
        values = {task: json.loads(decompressed(data)) for task, data in connection.execute(query)}
        return {task: value if isinstance(value, dict) else {} for task, value in values.items()}

    def _joined(self, query: Select[Any], page: FromClause | None = None) -> Select[Any]:
        """A query over episodes and their tasks; with ``page`` only over those whose ids it has."""
        episode, task = tables.episodes.c, tables.tasks.c
        episodes: FromClause = tables.episodes
        if page is not None:
            episodes = page.join(tables.episodes, episode.id == page.c.id)
        return query.select_from(
            # Each episode has its task. That no row may be lost keeps SQLite from beginning with all tasks of the run.
            episodes.join(tables.tasks, and_(task.run == episode.run, task.id == episode.task), isouter=True)
        )

    def _matching(self, query: Select[Any], tests: Sequence[ColumnElement[bool]]) -> Select[Any]:
        """A query over the episodes that pass tests, joined with their tasks only where something needs these."""
        by_task = any(
            getattr(element, "table", None) is tables.tasks
            for test in tests
            for element in visitors.iterate(test)
        )
        return (self._joined(query) if by_task else query.select_from(tables.episodes)).where(*tests)

    def _sorted_ids(self, tests: Sequence[ColumnElement[bool]], sort: str, descending: bool) -> Select[Any]:
        query = self._matching(select(tables.episodes.c.id), tests)
        return query.order_by(*_order(sort, descending))

    def _tests(
        self, condition: str, search: str, superseded: bool, since: float | None = None
    ) -> list[ColumnElement[bool]]:
        columns = tables.episodes.c
        tests: list[ColumnElement[bool]] = [columns.run == self.location.run]
        if not superseded:
            tests.append(columns.status != "superseded")
        if condition.strip():
            tests.append(where(condition))
        if since is not None:
            tests.append(columns.began > since)
        if search.strip():
            tests.append(contains_text(search.strip()))
        return tests


def _order(sort: str, descending: bool) -> tuple[Any, Any]:
    if sort not in SORTS:
        raise UsageError(f"Episodes cannot be sorted by {sort!r}; by {', '.join(SORTS)}.")
    column, name = SORTS[sort], tables.episodes.c.id
    if not column.nullable:
        return (column.desc(), name.desc()) if descending else (column.asc(), name.asc())
    # Where a figure is missing there is nothing to compare: at the end in both directions.
    return (
        (column.desc().nulls_last(), name.desc()) if descending else (column.asc().nulls_last(), name.asc())
    )


def _head_query(*columns: ColumnElement[Any]) -> Select[Any]:
    task = tables.tasks.c
    head = [column for column in tables.episodes.c if column.name not in _HIDDEN]
    return select(
        *head, *columns, task.index, task.source, task.question, task.answer.label("correct_answer")
    )


def _head(columns: Mapping[str, Any]) -> EpisodeHead:
    """The head of an episode, from the columns of ``_head_query`` by name."""
    suspicions, first, last = columns["suspicions"], columns["weights_first"], columns["weights_last"]
    figures = EpisodeFigures(
        **{name: columns[name] for name in COLUMNS},
        weights=None if first is None else (first, last),
        suspicions=suspicions.strip(",").split(",") if suspicions else None,
    )
    return EpisodeHead(**{name: columns[name] for name in _HEAD_FIELDS}, figures=figures)


def _contents(connection: Connection, ids: Sequence[str], read_blob: ReadBlob) -> dict[str, EpisodeContent]:
    table = tables.contents.c
    query = select(table.episode, table.data).where(table.episode.in_(ids))
    return {
        name: _filled(decoded_content(decompressed(data)), read_blob)
        for name, data in connection.execute(query).all()
    }


def _filled(content: EpisodeContent, read_blob: ReadBlob) -> EpisodeContent:
    agents = tuple(
        changed(agent, nodes=tuple(_filled_node(node, read_blob) for node in agent.nodes))
        for agent in content.agents
    )
    return changed(content, agents=agents)


def _filled_node(node: StoredNode, read_blob: ReadBlob) -> StoredNode:
    if not node.shared:
        return node
    data = read_blob(node.shared)
    if data is None:
        return changed(node, redacted=True)
    shared = decoded_node(data)
    return changed(node, messages=shared.messages, tokens=shared.tokens, redacted=shared.redacted)


def _tools(content: EpisodeContent | None, read_blob: ReadBlob) -> dict[str, Any]:
    digests = {call.tools for agent in content.agents for call in agent.calls} - {""} if content else set()
    schemas = {digest: read_blob(digest) for digest in digests}
    return {digest: json.loads(data) for digest, data in schemas.items() if data is not None}


def _row_uses(connection: Connection, ids: Sequence[str]) -> dict[str, list[RowUse]]:
    table = tables.rows.c
    query = select(tables.rows).where(table.episode.in_(ids)).order_by(table.episode, table.number)
    uses: dict[str, list[RowUse]] = defaultdict(list)
    for row in connection.execute(query):
        advantages = unpacked_floats(decompressed(row.advantages)) if row.advantages else ()
        uses[row.episode].append(
            RowUse(row.trained_step, row.position, row.masked_in, row.advantage, advantages)
        )
    return uses
