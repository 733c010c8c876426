"""Where the store of a run is; found without the library for databases, which processes that play do not need."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from aworld_train.atomic import write_text

STORE_FOLDER = "store"
EVENTS_FOLDER = "events"
_DATABASE = "episodes.db"
_IDENTITY = "run.json"


@dataclass(frozen=True)
class StoreLocation:
    """Where the store of a run is: ``run`` is its id in the database, ``url`` None for the file in the folder."""

    folder: Path
    run: str
    name: str
    url: str | None = None

    @property
    def events(self) -> Path:
        return self.folder / EVENTS_FOLDER

    @property
    def file(self) -> Path:
        return self.folder / _DATABASE


def store_location(run_folder: Path, *, url: str | None = None, make: bool = False) -> StoreLocation | None:
    """The location of a run's store; None where the run has no store and none is made."""
    folder = run_folder / STORE_FOLDER
    file = folder / _IDENTITY
    run = _identity(folder, "run")
    if run is None:
        if not make:
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = uuid.uuid4().hex
        write_text(file, json.dumps({"run": run, "in": "postgresql" if url else _DATABASE}) + "\n")
    return StoreLocation(folder, run, run_folder.resolve().name, url)


def is_elsewhere(location: StoreLocation) -> bool:
    return _identity(location.folder, "in") not in (None, _DATABASE)


def _identity(folder: Path, name: str) -> str | None:
    try:
        return str(json.loads((folder / _IDENTITY).read_text())[name])
    except (OSError, ValueError, KeyError, TypeError):
        return None
