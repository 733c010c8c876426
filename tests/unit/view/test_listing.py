"""Lists read an index alone, and pages hold in every order."""

from pathlib import Path

import sqlalchemy
from sqlalchemy import select

from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.store_location import store_location
from tests.stored_runs import make_stored_run, open_store


def test_a_list_in_order_of_time_is_read_from_an_index_alone(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=1)
    place = store_location(folder)
    assert place is not None
    database = Database(place)
    columns = tables.episodes.c
    query = (
        select(columns.id)
        .where(columns.run == place.run, columns.status != "superseded", columns.outcome == "timeout")
        .order_by(columns.began.desc(), columns.id.desc())
        .limit(100)
    )
    text = str(query.compile(database.engine, compile_kwargs={"literal_binds": True}))
    with database.begin() as connection:
        plan = [row.detail for row in connection.execute(sqlalchemy.text(f"EXPLAIN QUERY PLAN {text}"))]
    database.close()
    assert len(plan) == 1 and "COVERING INDEX episodes_listed" in plan[0], plan


def test_pages_of_every_order_hold_each_episode_once_and_in_the_order_of_ids(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=2)
    store = open_store(folder)
    assert store is not None
    with store:
        for sort in ("began", "reward", "index", "outcome", "advantage"):
            for descending in (False, True):
                ids = store.ids(sort=sort, descending=descending)
                pages = [
                    head.id
                    for offset in range(0, 48, 10)
                    for head in store.episodes(sort=sort, descending=descending, limit=10, offset=offset)
                ]
                assert ids == pages and len(set(ids)) == 48
                ordered = store.episodes(sort=sort, descending=descending)
                rewards = [head.figures.reward for head in ordered]
                if sort == "reward":
                    assert rewards[-12:] == [None] * 12
