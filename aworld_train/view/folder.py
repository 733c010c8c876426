"""The folder of runs that the page shows: its runs by name, with their stores, read again only after a change."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aworld_train.errors import UsageError
from aworld_train.store.reading import Store
from aworld_train.store.store_location import is_elsewhere, store_location
from aworld_train.training.recorded_run import RecordedRun, open_run
from aworld_train.training.run_files import MANIFEST, METRICS, RECIPE, SUMMARY
from aworld_train.training.run_store import find_run_store

REPORT = "report.html"
_MAX_STORES = 16
_MAX_CACHED = 64
_T = TypeVar("_T")


class NoSuchRun(UsageError):
    pass


class RunsFolder:
    def __init__(self, path: Path):
        self.path = path
        self._lock = threading.Lock()
        self._stores: OrderedDict[str, Store] = OrderedDict()
        self._query_locks: dict[tuple[str, str], threading.Lock] = {}
        self._cache: OrderedDict[tuple[str, str], tuple[str, Any]] = OrderedDict()

    def names(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self.path.iterdir() if (entry / RECIPE).is_file())
        except OSError:
            return []

    def run(self, name: str) -> RecordedRun:
        # What an address names is only ever compared with the names that are there.
        if name not in self.names():
            raise NoSuchRun(f"Unknown run {name!r} in {self.path}.")
        return open_run(str((self.path / name).absolute()), self.path)

    def store(self, run: RecordedRun) -> Store | None:
        key = str(run.path)
        with self._lock:
            if key in self._stores:
                self._stores.move_to_end(key)
                return self._stores[key]
        store = find_run_store(run)
        if store is None:
            return None
        with self._lock:
            # Another thread may have opened it meanwhile.
            store = self._stores.setdefault(key, store)
            if len(self._stores) > _MAX_STORES:
                # A query that still uses it keeps its own connection.
                self._stores.popitem(last=False)[1].close()
        return store

    def version(self, name: str) -> str:
        """A text that changes whenever what is recorded of a run does."""
        run = self.path / name
        files = [run / each for each in (RECIPE, MANIFEST, METRICS, SUMMARY, REPORT)]
        states = [_state(file) for file in files]
        location = store_location(run)
        if location is not None and is_elsewhere(location):
            store = self.store(self.run(name))
            states.append(str(store.newest()) if store else "")
        elif location is not None:
            states += [_state(location.file), _state(location.file.with_name(f"{location.file.name}-wal"))]
        return " ".join(states)

    def cached(self, kind: str, name: str, query: Callable[[], _T]) -> _T:
        """What ``query`` returns for a run; called again only after a change of the run, once for all callers."""
        key = (kind, name)
        with self._lock:
            query_lock = self._query_locks.setdefault(key, threading.Lock())
        with query_lock:
            version = self.version(name)
            with self._lock:
                cached = self._cache.get(key)
                if cached is not None and cached[0] == version:
                    self._cache.move_to_end(key)
                    value: _T = cached[1]
                    return value
            value = query()
            with self._lock:
                self._cache[key] = (version, value)
                if len(self._cache) > _MAX_CACHED:
                    oldest, _ = self._cache.popitem(last=False)
                    self._query_locks.pop(oldest, None)
        return value

    def close(self) -> None:
        with self._lock:
            for store in self._stores.values():
                store.close()
            self._stores.clear()


def _state(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return "-"
    if not status.st_size:  # such as the write-ahead log that opening a database makes
        return "-"
    return f"{status.st_size}.{status.st_mtime_ns}.{status.st_ino}"
