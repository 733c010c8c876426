"""The store of a run, filled while it is running, and opened afterwards."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from aworld_train.atomic import write_text
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.errors import StoreFailure, UsageError, suggestion
from aworld_train.recipe import LoadedRecipe, dump
from aworld_train.recipe.interpolation import resolved
from aworld_train.recipe.schema import StoreSection
from aworld_train.store.conditions import compared_values
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.event_files import event_files
from aworld_train.store.loading import StoreLoader, close_running, load, refusal_note
from aworld_train.store.pruning import limit_size
from aworld_train.store.reading import Store
from aworld_train.store.retention import parse_keep
from aworld_train.store.span_sender import SpanSender
from aworld_train.store.store_location import STORE_FOLDER, StoreLocation, is_elsewhere, store_location
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.training.run_files import MANIFEST, RECIPE, SUMMARY, is_in_use, write_object

_LAST_SECONDS = 60.0  # how long the end of a run waits for a database that does not answer
_LAST_SPANS_SECONDS = 15.0
_VALUES: Mapping[str, Collection[str]] = {
    "phase": ("train", "val", "eval", "rollout"),
    "status": ("running", "ended", "lost", "superseded"),
    "outcome": [outcome.value for outcome in Outcome],
    "treatment": [treatment.value for treatment in Treatment],
}
"""Columns of episodes that have one of some values; a run may have others by another program."""


class RunStore:
    """Loads the episodes of a run into its store while the block runs; entering closes what an earlier attempt left.

    ``set_aside`` is called then. ``is_new``: this is the first attempt, so a database in the folder is made later.
    """

    def __init__(
        self,
        run_folder: Path,
        section: StoreSection,
        note: Callable[[str], None],
        *,
        set_aside: Callable[[Database], object] = lambda database: None,
        model: str = "",
        is_new: bool = False,
    ):
        self._folder, self._section, self._note = run_folder, section, note
        self._set_aside, self._model, self._is_new = set_aside, model, is_new
        self._loader: StoreLoader | None = None
        self._sender: SpanSender | None = None

    def __enter__(self) -> Self:
        if not parse_keep(self._section.keep).is_on:
            return self
        if not self._is_new or self._section.url is not None:
            self._take_up()
        if self._section.otlp is not None:
            self._sender = SpanSender(str(self._section.otlp), self._note, model=self._model)
        self._loader = StoreLoader(self._open, self._note, loaded=self._after_load)
        self._loader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loader is not None and not self._loader.close(max_seconds=_LAST_SECONDS):
            self._note(
                f"Some episodes are not in the store's database yet, for the reason said above. They are kept in "
                f"{self._folder / STORE_FOLDER}, and the next command that reads this run enters them."
            )
        if self._sender is not None and not self._sender.close(_LAST_SPANS_SECONDS):
            self._note("Some spans could not be sent to store.otlp; they are sent when the run continues.")

    def _take_up(self) -> None:
        reasons: list[str] = []
        try:
            with closing(self._open()) as database:
                load(database, final=True, refused=reasons.append)
                if reasons:
                    self._note(refusal_note(reasons[0]))
                close_running(database)
                self._set_aside(database)
        except StoreUnreachable as error:
            raise StoreFailure(
                f"The database of the store does not answer: {error}. Start it, correct store.url, or leave that out "
                "to keep episodes in the run's folder."
            ) from error

    def _open(self) -> Database:
        return Database(_made_store(self._folder, self._section.url))

    def _after_load(self, database: Database) -> None:
        if self._sender is not None:
            self._sender.send_new(database)
        if self._section.max_gb is not None:
            limit_size(database, self._section.max_gb * 1e9)


def keep_rollouts(folder: Path, runs: Path, loaded: LoadedRecipe) -> Path | None:
    """Move what `rollout` has played into the recipe's folder for rollouts; None if the recipe keeps no store."""
    if not parse_keep(loaded.recipe.store.keep).is_on:
        return None
    target = runs / f"rollout-{loaded.recipe.name}"
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / RECIPE, dump(dict(loaded.unresolved) | {"name": target.name}))
    facts = {"name": target.name, "status": "completed", "steps_done": 0, "steps_planned": 0}
    write_object(target / SUMMARY, facts)
    started = {"attempts": [{"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "from_step": 0}]}
    write_object(target / MANIFEST, started)
    _enter_rollouts(folder, target, loaded.recipe.store)
    return target


def _enter_rollouts(folder: Path, target: Path, section: StoreSection) -> None:
    played, location = _made_store(folder), _made_store(target, section.url)
    location.events.mkdir(mode=0o700, exist_ok=True)
    for file in event_files(played.events):
        # A name says machine, process and time, so it is the only one of its kind; the folders may be of two disks.
        write = location.events / f"{file.name}.partial"
        write.touch(mode=0o600)
        write.write_bytes(file.read_bytes())
        write.rename(location.events / file.name)
        file.unlink()
    try:
        with closing(Database(location)) as database:
            load(database, final=True)
            close_running(database)
    except StoreUnreachable as error:
        raise StoreFailure(
            f"The database of the store does not answer: {error}. The episodes are kept in {target / STORE_FOLDER}; "
            "the next command that reads them there enters them."
        ) from error


def _made_store(folder: Path, url: str | None = None) -> StoreLocation:
    location = store_location(folder, url=None if url is None else str(url), make=True)
    assert location is not None
    return location


def open_run_store(run: RecordedRun, condition: str = "") -> Store:
    """As ``find_run_store``, for what needs a store, after a check of the condition's values."""
    store = find_run_store(run)
    if store is None:
        raise UsageError(
            f"The run {run.name} has no store: it was made with store.keep=off, by an earlier version, or it has not "
            "begun."
        )
    try:
        _check_values(store, condition)
    except BaseException:
        store.close()
        raise
    return store


def _check_values(store: Store, condition: str) -> None:
    for name, value in compared_values(condition):
        if name not in _VALUES or value == "null":
            continue
        known = {*_VALUES[name], *store.figures().values(name)}
        if value not in known:
            hint = suggestion(value, known, f" There are {', '.join(sorted(known))}.")
            raise UsageError(f"No episodes match {condition!r}: {name} is never {value!r}.{hint}")


def find_run_store(run: RecordedRun) -> Store | None:
    """The store of a recorded run, open for reading; None where it has none."""
    database = run_database(run)
    if database is None:
        return None
    database.close()
    return Store(database.location)


def run_database(run: RecordedRun) -> Database | None:
    """The database of a recorded run, with what a killed process left; None without a store."""
    location = store_location(run.path)
    if location is None:
        return None
    if is_elsewhere(location):
        location = store_location(run.path, url=_url(run))
        assert location is not None
    try:
        database = Database(location)
        if not is_in_use(run.path):
            load(database, final=True)
            close_running(database)
        return database
    except StoreUnreachable as error:
        raise StoreFailure(
            f"The database with the episodes of {run.name} does not answer: {error}."
        ) from error


def _url(run: RecordedRun) -> str:
    section: Any = run.recipe.get("store")
    url = section.get("url") if isinstance(section, dict) else None
    if not url:
        raise UsageError(
            f"The episodes of {run.name} are in a database that its recipe does not name any more."
        )
    return str(resolved(url))
