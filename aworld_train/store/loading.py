"""Loads the events that a run's processes have written into its database, each exactly once.

How far a file is loaded is recorded in the database and changes in the transaction that enters its events. So a loader
that is killed, or a database that goes away, loses and repeats nothing. What a database refuses to hold, because
models and tools write what they like, holds nothing else up: the episode ends with the reason as its cause.
"""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from sqlalchemy import JSON, ColumnElement, and_, bindparam, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.schema import Table

from aworld_train.atomic import is_locked
from aworld_train.episode.figures import EpisodeFigures
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.store import tables
from aworld_train.store.compression import compressed
from aworld_train.store.database import Database, StoreUnreachable, ValuesRefused, brief
from aworld_train.store.event_files import event_files, has_successor, read_events
from aworld_train.store.events import (
    Blob,
    EpisodeBegun,
    EpisodeEnded,
    Event,
    GroupsDropped,
    GroupsReplayed,
    RowsTrained,
    TaskSeen,
)
from aworld_train.store.step_figures import keep_figures, mark_changed
from aworld_train.store.table_rows import Rows, add_content_rows, end_values

_BATCH_BYTES = 4 << 20
_NICENESS = 19
_JOIN_SECONDS = 60
_KEYS_AT_ONCE = 500
# Which columns these set, their parameters say.
_UPDATE_EPISODE = update(tables.episodes).where(tables.episodes.c.id == bindparam("episode"))
_UPDATE_ROW = update(tables.rows).where(
    tables.rows.c.episode == bindparam("row_episode"), tables.rows.c.number == bindparam("row_number")
)


_REFUSALS = (ValuesRefused, OverflowError, TypeError, ValueError)
"""What the values of an event can raise; the last three come from what is made of them, and from SQLite's driver."""


class NotYet(Exception):
    """An event is about episodes that are not loaded yet: those of another process, which writes them soon."""


def load(
    database: Database, *, final: bool = False, refused: Callable[[str], None] = lambda reason: None
) -> int:
    """Load what has been written since the last time; returns the number of events.

    With ``final`` the processes that write have ended: files that are loaded are removed, and events about episodes
    that nobody has reported are passed over. ``refused`` is called with the reason for each event that the database
    refuses; an episode is entered without its content then, with the reason as its cause. Raises StoreUnreachable if
    the database does not answer; what was not loaded stays in its file.
    """
    location, count = database.location, 0
    files = event_files(location.events)
    with database.begin() as connection:
        columns = tables.event_files.c
        rows = connection.execute(select(columns.name, columns.loaded).where(columns.run == location.run))
        loaded = {row.name: row.loaded for row in rows}
    # The trainer's events may be about episodes of a file that comes later in this order, so every file has two turns.
    for is_last in (False, True):
        for file in files:
            count += _load_file(database, file, loaded, final and is_last, refused)
    for file in files:
        # What waits still for the episodes of another process stays.
        is_loaded = next(read_events(file, loaded.get(file.name, 0), 1), None) is None
        if is_loaded and (has_successor(file, files) or (final and not is_locked(file))):
            _remove(database, file, loaded)
    keep_figures(database, final=final)
    return count


def close_running(database: Database) -> int:
    """Close the episodes whose process has ended before them, as ``lost``; returns how many there were."""
    table, run = tables.episodes, database.location.run
    is_running = and_(table.c.run == run, table.c.status == "running")
    with database.begin() as connection:
        mark_changed(connection, run, is_running)
        result = connection.execute(
            update(table)
            .where(is_running)
            .values(
                status="lost",
                outcome=Outcome.infrastructure,
                treatment=Treatment.dropped.value,
                cause="the process that played it ended before it",
            )
        )
    return int(result.rowcount)


def supersede(database: Database, step: int, *, validated: bool) -> int:
    """Mark the episodes after a step, which a resumed run plays again, as ``superseded``; returns how many.

    ``step`` is that of the checkpoint, 0 without one; its validation is played again unless it is ``validated``.
    """
    table, run = tables.episodes, database.location.run
    later = table.c.step > step if step else table.c.step >= 0
    if step and not validated:
        later = or_(later, and_(table.c.step == step, table.c.phase == "val"))
    untrained = and_(table.c.run == run, table.c.trained_step > step)
    with database.begin() as connection:
        mark_changed(connection, run, and_(table.c.run == run, or_(later, untrained)))
        count = _supersede(connection, and_(table.c.run == run, later))
        # Those that were played before, where sampling runs ahead, are still to be trained.
        of_untrained = tables.rows.c.episode.in_(select(table.c.id).where(untrained))
        connection.execute(update(tables.rows).where(of_untrained).values(_NO_USE))
        connection.execute(update(table).where(untrained).values(trained_step=None, advantage=None))
    return count


_NO_USE = dict.fromkeys(("trained_step", "position", "masked_in", "advantage", "advantages"))


def _supersede(connection: Connection, condition: ColumnElement[bool]) -> int:
    table = tables.episodes
    result = connection.execute(
        update(table)
        .where(table.c.status != "superseded", condition)
        .values(status="superseded", trained_step=None)
    )
    return int(result.rowcount)


def attempts_by_status(database: Database, phase: str) -> dict[str, bool | None]:
    """Whether each attempt of a phase that is not set aside has a score, by its key; None for one under way."""
    columns = tables.episodes.c
    query = select(columns.key, columns.status, columns.accuracy).where(
        columns.run == database.location.run, columns.phase == phase, columns.status != "superseded"
    )
    with database.begin() as connection:
        return {
            row.key: row.accuracy is not None if row.status == "ended" else None
            for row in connection.execute(query)
        }


def set_aside(database: Database, phase: str, keys: Iterable[str]) -> None:
    """Mark attempts as ``superseded``, because they are made again."""
    table, ordered, run = tables.episodes.c, sorted(keys), database.location.run
    with database.begin() as connection:
        for begin in range(0, len(ordered), _KEYS_AT_ONCE):
            keys_at_once = table.key.in_(ordered[begin : begin + _KEYS_AT_ONCE])
            made_again = and_(table.run == run, table.phase == phase, keys_at_once)
            mark_changed(connection, run, made_again)
            _supersede(connection, made_again)


class StoreLoader:
    """Loads events while a run continues, from a thread, and reports once what keeps them out of the database."""

    def __init__(
        self,
        open_database: Callable[[], Database],
        note: Callable[[str], None],
        *,
        seconds: float = 1.0,
        loaded: Callable[[Database], None] = lambda database: None,
    ):
        self._open, self._note, self._seconds, self._loaded = open_database, note, seconds, loaded
        self._database: Database | None = None
        self._behind = self._has_refused = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-loader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, max_seconds: float) -> bool:
        """Load the rest, after all processes that write have ended, and close what they left running; returns whether
        everything is in the database: what is not stays in the files of events.
        """
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=max_seconds + _JOIN_SECONDS)
        waited = 0.0
        while not self._load(final=True):
            if waited >= max_seconds:
                break
            threading.Event().wait(self._seconds)
            waited += self._seconds
        if self._database is not None:
            self._database.close()
            self._database = None
        return not self._behind

    def _run(self) -> None:
        _yield_to_training()
        while not self._ended.wait(self._seconds):
            self._load(final=False)

    def _load(self, *, final: bool) -> bool:
        try:
            if self._database is None:
                self._database = self._open()
            count = load(self._database, final=final, refused=self._refused)
            if final:
                close_running(self._database)
            if count or final:
                self._loaded(self._database)
        except StoreUnreachable as error:
            return self._cannot(
                f"The store's database does not answer ({error}); episodes are kept in files until it does."
            )
        except Exception as error:
            # The thread would end without a word.
            return self._cannot(
                f"Episodes cannot be entered into the store's database ({type(error).__name__}: {brief(error)}); they "
                "are kept in files, and this is tried again."
            )
        if self._behind:
            self._note("The store's database takes episodes again.")
        self._behind = False
        return True

    def _cannot(self, sentence: str) -> bool:
        if not self._behind:
            self._note(sentence)
        self._behind = True
        return False

    def _refused(self, reason: str) -> None:
        if not self._has_refused:
            self._note(refusal_note(reason))
        self._has_refused = True


def _yield_to_training() -> None:
    """Let this thread compute when nothing of the run does: nothing waits for it. Ray's workers have niceness 15."""
    if sys.platform == "linux":
        # There each thread has a niceness of its own.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def refusal_note(reason: str) -> str:
    return (
        f"The store's database refused some of what was reported ({reason}). The episodes it was about say so; they "
        "are trained on and scored as they were."
    )


def _load_file(
    database: Database, file: Path, loaded: dict[str, int], final: bool, refused: Callable[[str], None]
) -> int:
    """Load a file from where its loading ended, one transaction for some megabytes."""
    count = 0
    while True:
        begin = end = loaded.get(file.name, 0)
        events: list[Event] = []
        for frame, offset in read_events(file, begin, _BATCH_BYTES):
            events += frame
            end = offset
        if end == begin:
            return count
        try:
            with database.begin() as connection:
                _enter(connection, database, events, final)
                _note_loaded(connection, database, file, end)
        except (NotYet, *_REFUSALS):
            # Up to an event that has to wait, events are entered; so are those before it in its frame, once more.
            count += _load_frames(database, file, loaded, final, refused)
            if loaded.get(file.name, 0) < end:
                return count
            continue
        loaded[file.name] = end
        count += len(events)


def _load_frames(
    database: Database, file: Path, loaded: dict[str, int], final: bool, refused: Callable[[str], None]
) -> int:
    """Load some megabytes of a file frame by frame, until an event has to wait."""
    count = 0
    for frame, offset in read_events(file, loaded.get(file.name, 0), _BATCH_BYTES):
        try:
            try:
                with database.begin() as connection:
                    _enter(connection, database, frame, final)
                    _note_loaded(connection, database, file, offset)
            except _REFUSALS:
                for event in frame:
                    _enter_alone(database, event, final, refused)
                with database.begin() as connection:
                    _note_loaded(connection, database, file, offset)
        except NotYet:
            return count
        loaded[file.name] = offset
        count += len(frame)
    return count


def _enter_alone(database: Database, event: Event, final: bool, refused: Callable[[str], None]) -> None:
    try:
        with database.begin() as connection:
            _enter(connection, database, [event], final)
    except _REFUSALS as error:
        reason = brief(error)
        refused(reason)
        rest = _without_values(event, reason)
        if rest is not None:
            with database.begin() as connection:
                _enter(connection, database, [rest], final)


def _without_values(event: Event, reason: str) -> Event | None:
    """What any database can hold of an event: that it happened; None for one that says nothing then."""
    match event:
        case TaskSeen():
            return TaskSeen(event.id, 0, "", "", "", "", "{}")
        case EpisodeEnded():
            figures = EpisodeFigures(
                outcome=(event.figures.outcome or "")[:50] or None,
                treatment=(event.figures.treatment or "")[:50] or None,
                cause=f"the store's database refused its content and figures: {reason}",
            )
            return EpisodeEnded(event.id, event.ended, figures)
    return None


def _note_loaded(connection: Connection, database: Database, file: Path, offset: int) -> None:
    insert = _insert(database, tables.event_files).values(
        run=database.location.run, name=file.name, loaded=offset
    )
    connection.execute(
        insert.on_conflict_do_update(index_elements=["run", "name"], set_={"loaded": insert.excluded.loaded})
    )


def _remove(database: Database, file: Path, loaded: dict[str, int]) -> None:
    """Remove a file to which nobody appends and that is loaded; a part that cannot be read is a frame cut off."""
    file.unlink(missing_ok=True)
    with database.begin() as connection:
        table = tables.event_files
        connection.execute(
            table.delete().where(table.c.run == database.location.run, table.c.name == file.name)
        )
    loaded.pop(file.name, None)


def _enter(connection: Connection, database: Database, events: Iterable[Event], final: bool) -> None:
    """Enter events, those of a kind in one statement as far as their order allows: statements cost more than rows."""
    rows: Rows = defaultdict(list)
    ends: list[dict[str, Any]] = []
    run = database.location.run
    for event in events:
        match event:
            case Blob():
                rows[tables.blobs].append({"digest": event.digest, "data": compressed(event.data)})
            case TaskSeen():
                rows[tables.tasks].append(asdict(event) | {"run": run, "row": compressed(event.row.encode())})
            case EpisodeBegun():
                begun = {"run": run, "status": "running", "has_content": False}
                rows[tables.episodes].append(asdict(event) | begun)
            case EpisodeEnded():
                ends.append(end_values(event))
                if event.content is not None:
                    add_content_rows(rows, event.id, event.content)
            case RowsTrained():
                _flush(connection, database, rows, ends)
                _train(connection, run, event, final)
            case GroupsDropped():
                _flush(connection, database, rows, ends)
                _drop(connection, run, event, final)
            case GroupsReplayed():
                _flush(connection, database, rows, ends)
                _replay(connection, run, event)
    _flush(connection, database, rows, ends)


_ORDER = (
    tables.blobs,
    tables.tasks,
    tables.episodes,
    tables.contents,
    tables.texts,
    tables.tool_calls,
    tables.rows,
)


def _flush(connection: Connection, database: Database, rows: Rows, ends: list[dict[str, Any]]) -> None:
    """Insert rows, then enter the ends of episodes, whose begins are among the rows or before them."""
    run, begun = database.location.run, rows.get(tables.episodes, [])
    if steps := {(row["phase"], row["step"]) for row in begun}:
        change = _insert(database, tables.steps).on_conflict_do_update(
            index_elements=["run", "phase", "step"], set_={"figures": None}
        )
        connection.execute(change, [{"run": run, "phase": phase, "step": step} for phase, step in steps])
    for table in _ORDER:
        if values := rows.pop(table, None):
            _insert_all(connection, _insert(database, table).on_conflict_do_nothing(), values)
    if ends:
        _update_episodes(connection, run, ends)
        ends.clear()


def _update_episodes(connection: Connection, run: str, changes: list[dict[str, Any]]) -> None:
    mark_changed(connection, run, tables.episodes.c.id.in_([change["episode"] for change in changes]))
    connection.execute(_UPDATE_EPISODE, changes)


def _insert_all(connection: Connection, insert: Any, values: list[dict[str, Any]]) -> None:
    """Insert rows; those that drivers take as they are pass SQLAlchemy by, which takes longer than the database."""
    if any(isinstance(column.type, JSON) for column in insert.table.c):
        connection.execute(insert, values)
        return
    compiled = insert.compile(dialect=connection.dialect, column_keys=list(values[0]))
    names = compiled.positiontup
    connection.exec_driver_sql(
        str(compiled), [tuple(map(row.__getitem__, names)) for row in values] if names else values
    )


def _insert(database: Database, table: Table) -> Any:
    return sqlite.insert(table) if database.is_sqlite else postgresql.insert(table)


def _train(connection: Connection, run: str, event: RowsTrained, final: bool) -> None:
    """Enter which rows a step has used; raises NotYet if some of their episodes are not loaded."""
    parsed = [(*row.key.rpartition("_")[::2], row) for row in event.rows]
    episodes = _episodes_by_key(connection, run, {key for key, _, _ in parsed})
    if not final and any(key not in episodes for key, _, _ in parsed):
        raise NotYet
    uses: list[dict[str, Any]] = []
    advantages: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for position, (key, number, row) in enumerate(parsed, start=event.before):
        episode = episodes.get(key)
        if episode is None:
            continue
        uses.append(
            {
                "row_episode": episode,
                "row_number": int(number),
                "trained_step": event.step,
                "position": position,
                "masked_in": row.masked_in,
                "advantage": row.advantage,
                "advantages": compressed(row.advantages) if row.advantages else None,
            }
        )
        if row.advantage is not None:
            advantages[episode].append((row.advantage, row.masked_in))
        advantages.setdefault(episode, [])
    if uses:
        connection.execute(_UPDATE_ROW, uses)
        trained = [
            {"episode": episode, "trained_step": event.step, "advantage": _weighted_mean(weighted)}
            for episode, weighted in advantages.items()
        ]
        _update_episodes(connection, run, trained)


def _weighted_mean(values: Sequence[tuple[float, int]]) -> float | None:
    weight = sum(count for _, count in values)
    return sum(value * count for value, count in values) / weight if weight else None


def _drop(connection: Connection, run: str, event: GroupsDropped, final: bool) -> None:
    table = tables.episodes
    for key in event.keys:
        is_of_group = and_(
            table.c.run == run,
            table.c.status == "ended",
            or_(table.c.key == key, table.c.key.startswith(f"{key}_", autoescape=True)),
        )
        mark_changed(connection, run, is_of_group)
        result = connection.execute(
            update(table)
            .where(is_of_group)
            .values(
                treatment=Treatment.dropped.value,
                cause=func.coalesce(table.c.cause, event.reason),
            )
        )
        if not result.rowcount and not final:
            raise NotYet


def _replay(connection: Connection, run: str, event: GroupsReplayed) -> None:
    table = tables.episodes
    groups = or_(*(table.c.key.startswith(f"{key}_", autoescape=True) for key in event.keys))
    earlier = and_(table.c.run == run, table.c.began < event.before, groups)
    mark_changed(connection, run, earlier)
    _supersede(connection, earlier)


def _episodes_by_key(connection: Connection, run: str, keys: set[str]) -> dict[str, str]:
    """The episodes that have ended by their keys; of an episode that was played again, the last that is used."""
    table = tables.episodes
    episodes: dict[str, str] = {}
    ordered = sorted(keys)
    for begin in range(0, len(ordered), _KEYS_AT_ONCE):
        rows = connection.execute(
            select(table.c.key, table.c.id)
            .where(
                table.c.run == run,
                table.c.key.in_(ordered[begin : begin + _KEYS_AT_ONCE]),
                table.c.status == "ended",
                func.coalesce(table.c.treatment, "") != Treatment.dropped.value,
            )
            .order_by(table.c.began)
        )
        episodes |= {row.key: row.id for row in rows}
    return episodes
