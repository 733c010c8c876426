"""Databases of older forms are brought to the newest one with all their rows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, select

from aworld_train.errors import UsageError
from aworld_train.store import migrate, tables
from aworld_train.store.database import Database
from aworld_train.store.reading import Store
from aworld_train.store.store_location import StoreLocation, store_location
from tests.stored_runs import make_stored_run


def place_of_old_database(folder: Path, runs: Path) -> StoreLocation:
    """The store of a run, in the first form of the tables, with the rows of a run made now."""
    new = store_location(make_stored_run(runs, "new", steps=1, tasks=2, attempts=2))
    old = store_location(folder, make=True)
    assert new is not None and old is not None
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    engine = sqlalchemy.create_engine(f"sqlite:///{old.file}")
    source = sqlalchemy.create_engine(f"sqlite:///{new.file}")
    with engine.connect() as connection, source.connect() as rows:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.commit()
        for table in tables.metadata.sorted_tables:
            if not inspect(connection).has_table(table.name):
                continue
            known = {column["name"] for column in inspect(connection).get_columns(table.name)}
            for row in rows.execute(select(table)).mappings():
                values = {name: value for name, value in row.items() if name in known}
                if "run" in values:
                    values["run"] = old.run
                if table is tables.runs:
                    values["id"] = old.run
                # Without SQLAlchemy's table, which has the columns of today.
                bare = sqlalchemy.table(table.name, *(sqlalchemy.column(n, table.c[n].type) for n in values))
                connection.execute(bare.insert().values(values))
        connection.commit()
    engine.dispose()
    source.dispose()
    return old


def test_a_database_of_the_first_form_is_upgraded_with_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    place = place_of_old_database(folder, tmp_path / "runs")
    engine = sqlalchemy.create_engine(f"sqlite:///{place.file}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE episodes SET left_out = 'too few' WHERE phase = 'train'")
    engine.dispose()
    Database(place).close()
    with Store(place) as store:
        heads = store.episodes()
        assert len(heads) == 8
        dropped = [head.figures.cause for head in heads if head.figures.treatment == "dropped"]
        assert dropped == ["too few"] * 4
        assert all(store.episode(head.id).content is not None for head in heads)
    database = Database(place, read_only=True)
    with database.begin() as connection:
        assert migrate.revision_of(connection) == migrate.NEWEST
        assert set(connection.execute(select(tables.episodes.c.spans_sent)).scalars()) == {None}
    database.close()


def shape(place: StoreLocation) -> dict[str, Any]:
    """All that makes up the tables of a database."""
    database = Database(place)
    with database.begin() as connection:
        found = inspect(connection)
        shape = {
            name: (
                # SQLite's integers have 64 bits under every name.
                {
                    column["name"]: (str(column["type"]).replace("BIGINT", "INTEGER"), column["nullable"])
                    for column in found.get_columns(name)
                },
                {i["name"]: (i["column_names"], i["unique"]) for i in found.get_indexes(name)},
                found.get_pk_constraint(name)["constrained_columns"],
                sorted(
                    (key["constrained_columns"], key["referred_table"], key["referred_columns"])
                    for key in found.get_foreign_keys(name)
                ),
                sorted(unique["column_names"] for unique in found.get_unique_constraints(name)),
            )
            for name in found.get_table_names()
        }
    database.close()
    return shape


def test_migrations_lead_to_the_tables_that_a_new_run_gets(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    migrated = place_of_old_database(folder, tmp_path / "runs")
    new = store_location(tmp_path / "runs" / "new")
    assert new is not None
    assert shape(migrated) == shape(new)
    assert set(shape(new)) == {table.name for table in tables.metadata.sorted_tables} | {"alembic_version"}


def test_two_processes_may_make_the_tables_of_a_run_at_once(tmp_path: Path) -> None:
    def make(file: Path) -> str | None:
        engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        with engine.connect() as connection:
            migrate.upgrade(connection)
            return migrate.revision_of(connection)

    for number in range(10):
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(make, [tmp_path / str(number)] * 4)) == {migrate.NEWEST}


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    place = store_location(make_stored_run(tmp_path, steps=0, tasks=1, attempts=1))
    assert place is not None
    database = Database(place)
    with database.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(UsageError, match=r"newer aworld-train \(its schema is 9999"):
        Database(place)
