"""The folder of what `rollout` has played, so that its episodes can be read as those of training."""

import time
from pathlib import Path

from aworld_train.atomic import write_text
from aworld_train.errors import StoreFailure
from aworld_train.recipe import LoadedRecipe, dump
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.event_files import event_files
from aworld_train.store.loading import close_running, load
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import STORE_FOLDER, store_location
from aworld_train.training.run_files import MANIFEST, RECIPE, SUMMARY, write_object


def keep_rollouts(folder: Path, runs: Path, loaded: LoadedRecipe) -> Path | None:
    """Move what `rollout` has played into the recipe's folder for rollouts; None if the recipe keeps no store."""
    if not parse_keep(loaded.recipe.store.keep).is_on:
        return None
    target = runs / f"rollout-{loaded.recipe.name}"
    _write(target, loaded)
    _enter(folder, target, loaded)
    return target


def _write(target: Path, loaded: LoadedRecipe) -> None:
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / RECIPE, dump(dict(loaded.unresolved) | {"name": target.name}))
    facts = {"name": target.name, "status": "completed", "steps_done": 0, "steps_planned": 0}
    write_object(target / SUMMARY, facts)
    started = {"attempts": [{"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "from_step": 0}]}
    write_object(target / MANIFEST, started)


def _enter(folder: Path, target: Path, loaded: LoadedRecipe) -> None:
    played = store_location(folder, make=True)
    url = loaded.recipe.store.url
    location = store_location(target, url=None if url is None else str(url), make=True)
    assert played is not None and location is not None
    location.events.mkdir(mode=0o700, exist_ok=True)
    for file in event_files(played.events):
        # A name says machine, process and time, so it is the only one of its kind; the folders may be of two disks.
        write = location.events / f"{file.name}.partial"
        write.touch(mode=0o600)
        write.write_bytes(file.read_bytes())
        write.rename(location.events / file.name)
        file.unlink()
    try:
        database = Database(location)
        try:
            load(database, final=True)
            close_running(database)
        finally:
            database.close()
    except StoreUnreachable as error:
        raise StoreFailure(
            f"The database of the store does not answer: {error}. The episodes are kept in {target / STORE_FOLDER}; "
            "the next command that reads them there enters them."
        ) from error
