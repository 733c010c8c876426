"""Where the store of a run is; found without the library for databases, which processes that play do not need."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from aworld_train.atomic import write_text

STORE_FOLDER = "store"
"""The folder of a run that holds its database and its events."""
EVENTS_FOLDER = "events"
_DATABASE = "episodes.db"
_IDENTITY = "run.json"


@dataclass(frozen=True)
class StorePlace:
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


def store_place(run_folder: Path, *, url: str | None = None, make: bool = False) -> StorePlace | None:
    """The place of a run's store.

    Returns:
        The place; None where the run has no store and none is made.
    """
    folder = run_folder / STORE_FOLDER
    file = folder / _IDENTITY
    try:
        run = str(json.loads(file.read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        if not make:
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = uuid.uuid4().hex
        write_text(file, json.dumps({"run": run, "in": "postgresql" if url else _DATABASE}) + "\n")
    return StorePlace(folder, run, run_folder.resolve().name, url)


def is_elsewhere(place: StorePlace) -> bool:
    """Whether the run's episodes are in a database outside its folder."""
    try:
        return str(json.loads((place.folder / _IDENTITY).read_text())["in"]) != _DATABASE
    except (OSError, ValueError, KeyError, TypeError):
        return False
