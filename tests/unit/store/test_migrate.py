"""Databases of older forms are brought to the newest one with all their rows."""

from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, select

from aworld_train.errors import UsageError
from aworld_train.store import migrate, tables
from aworld_train.store.database import Database
from aworld_train.store.place import StorePlace, store_place
from aworld_train.store.reading import Store
from tests.stored_runs import make_stored_run


def place_of_old_database(folder: Path, runs: Path) -> StorePlace:
    """The store of a run, in the first form of the tables, with the rows of a run made now."""
    new = store_place(make_stored_run(runs, "new", steps=1, tasks=2, attempts=2))
    old = store_place(folder, make=True)
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
    Database(place).close()
    with Store(place) as store:
        heads = store.episodes()
        assert len(heads) == 8
        assert all(store.episode(head.id).content is not None for head in heads)
    database = Database(place, read_only=True)
    assert database.is_current()
    with database.begin() as connection:
        assert set(connection.execute(select(tables.episodes.c.spans_sent)).scalars()) == {None}
    database.close()


def test_migrations_lead_to_the_tables_of_today(tmp_path: Path) -> None:
    place = store_place(make_stored_run(tmp_path, steps=0, tasks=1, attempts=1))
    assert place is not None
    database = Database(place)
    with database.begin() as connection:
        found = inspect(connection)
        for table in tables.metadata.sorted_tables:
            columns = {column["name"]: column["nullable"] for column in found.get_columns(table.name)}
            assert columns == {column.name: bool(column.nullable) for column in table.columns}, table.name
            indexes = {index["name"]: index["column_names"] for index in found.get_indexes(table.name)}
            assert indexes == {str(index.name): [c.name for c in index.columns] for index in table.indexes}
    database.close()


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    place = store_place(make_stored_run(tmp_path, steps=0, tasks=1, attempts=1))
    assert place is not None
    database = Database(place)
    with database.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(UsageError, match=r"newer aworld-train \(its schema is 9999"):
        Database(place)
