"""Both kinds of database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train.store.store_location import StoreLocation, store_location
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the module's own."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A new store, once in each kind of database."""
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    found = store_location(tmp_path / "run", url=url, make=True)
    assert found is not None
    return found
