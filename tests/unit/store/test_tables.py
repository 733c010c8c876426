"""Databases get their tables once, and those of another version are refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import inspect

from aworld_train.episode.figures import COLUMNS
from aworld_train.errors import UsageError
from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.reading import Store
from aworld_train.store.store_location import store_location
from tests.stored_runs import make_stored_run


def test_columns_of_later_figures_are_added_to_a_database_with_its_rows(tmp_path: Path) -> None:
    location = store_location(make_stored_run(tmp_path, steps=1, tasks=2, attempts=2))
    assert location is not None
    indexed = {column.name for index in tables.episodes.indexes for column in index.columns}
    later = COLUMNS.keys() - indexed
    assert len(later) > 5
    engine = sqlalchemy.create_engine(f"sqlite:///{location.file}")
    with engine.begin() as connection:
        for name in later:
            connection.exec_driver_sql(f"ALTER TABLE episodes DROP COLUMN {name}")
    Database(location).close()
    with engine.connect() as connection:
        columns = {
            column["name"]: str(column["type"]) for column in inspect(connection).get_columns("episodes")
        }
    engine.dispose()
    assert columns == {column.name: str(column.type) for column in tables.episodes.columns}
    with Store(location) as store:
        assert len(heads := store.episodes()) == 8
        assert all(store.episode(head.id).content is not None for head in heads)


def test_two_processes_may_make_the_tables_of_a_run_at_once(tmp_path: Path) -> None:
    def make(file: Path) -> str | None:
        engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        with engine.connect() as connection:
            tables.make_tables(connection)
            return tables.version_of(connection)

    for number in range(10):
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(make, [tmp_path / str(number)] * 4)) == {tables.VERSION}


@pytest.mark.parametrize(("version", "made_by"), [("0006", "an older"), ("9999", "a newer")])
def test_tables_of_another_version_are_refused(tmp_path: Path, version: str, made_by: str) -> None:
    location = store_location(make_stored_run(tmp_path, steps=0, tasks=1, attempts=1))
    assert location is not None
    database = Database(location)
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(f"UPDATE alembic_version SET version_num = '{version}'"))
    database.close()
    with pytest.raises(
        UsageError, match=rf"made by {made_by} aworld-train: its tables have version {version}"
    ):
        Database(location)
