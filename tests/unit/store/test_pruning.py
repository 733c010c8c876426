"""Texts and tokens are removed, figures stay, and what several episodes share stays while one of them needs it."""

from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from aworld_train.store import pruning, tables
from aworld_train.store.database import Database
from aworld_train.store.pruning import limit_size, prune
from aworld_train.store.store_location import store_location
from tests.stored_runs import make_stored_run, open_store


def database_of(run: Path) -> Database:
    place = store_location(run)
    assert place is not None
    return Database(place)


def test_what_meets_the_condition_loses_its_content_and_keeps_its_figures(tmp_path: Path) -> None:
    run = make_stored_run(tmp_path)
    database = database_of(run)
    pruned = prune(database, "step>0 and reward=1")
    database.close()
    assert pruned.episodes == 24
    store = open_store(run)
    assert store is not None
    with store:
        assert store.count() == 64
        for head in store.episodes():
            removed = head.step > 0 and head.figures.reward == 1
            content = store.episode(head.id).content
            assert (content is None) is removed
            assert content is None or all(node.messages for node in content.agents[0].nodes)


def test_prompts_that_nobody_needs_go_with_their_episodes(tmp_path: Path) -> None:
    run = make_stored_run(tmp_path)
    database = database_of(run)
    with database.begin() as connection:
        before = connection.execute(select(func.count()).select_from(tables.blobs)).scalar_one()
    assert prune(database, "step=1").blobs == 4
    assert prune(database, "step>=0").blobs == before - 4
    assert prune(database, "").episodes == 0
    database.close()


def test_a_database_over_its_limit_loses_the_oldest_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_CHUNK", 8)
    run = make_stored_run(tmp_path, steps=8)
    database = database_of(run)
    with database.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    assert limit_size(database, 10 * pages * 4096) == 0
    removed = limit_size(database, 0.9 * pages * 4096)
    columns = tables.episodes.c
    with database.begin() as connection:
        kept = list(connection.execute(select(columns.has_content).order_by(columns.began)).scalars())
    database.close()
    assert 0 < removed < len(kept) == 9 * 16
    assert kept == [False] * removed + [True] * (len(kept) - removed)


def test_a_run_that_appends_waits_for_few_episodes_of_a_removal_and_not_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_CHUNK", 8)
    run = make_stored_run(tmp_path)
    database, other = database_of(run), database_of(run)
    remove, removed = pruning._remove, []

    def seen(connection: Connection, name: str, episodes: list[str]) -> None:
        with other.begin() as reader:
            without = select(func.count()).where(~tables.episodes.c.has_content)
            removed.append(reader.execute(without).scalar_one())
        remove(connection, name, episodes)

    monkeypatch.setattr(pruning, "_remove", seen)
    assert limit_size(database, 1) == 64
    database.close()
    other.close()
    assert removed == list(range(0, 64, 8))


def test_only_superseded_episodes_are_pruned_if_that_is_asked(tmp_path: Path) -> None:
    run = make_stored_run(tmp_path)
    database = database_of(run)
    assert prune(database, "", superseded=True).episodes == 0
    database.close()
