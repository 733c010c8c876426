"""Spans reach an OTLP endpoint while a run goes on, and nothing waits for an endpoint that is away."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from aworld_train.errors import DependencyMissing, UsageError
from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.loading import StoreLoader
from aworld_train.store.span_sender import SpanSender, headers_from_environment, traces_url
from aworld_train.store.store_location import store_location
from tests.otlp_receiver import OtlpReceiver
from tests.stored_runs import make_stored_run


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The store of a run of eight episodes."""
    folder = make_stored_run(tmp_path, steps=1, tasks=2, attempts=2)
    place = store_location(folder)
    assert place is not None
    opened = Database(place)
    yield opened
    opened.close()


@pytest.fixture
def notes() -> list[str]:
    return []


def sent(database: Database) -> dict[str, float | None]:
    """When the spans of each episode were sent."""
    columns = tables.episodes.c
    with database.begin() as connection:
        return dict(connection.execute(select(columns.id, columns.spans_sent)).all())


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_episode_is_sent_once(database: Database, notes: list[str]) -> None:
    with OtlpReceiver() as receiver:
        sender = SpanSender(receiver.url, notes.append, model="tiny")
        sender.send_new(database)
        eventually(lambda: len(receiver.traces) == 8)
        sender.send_new(database)
        assert sender.close(10)
        roots = [span for span in receiver.spans if not span["parent"]]
        assert sorted(span["attributes"]["aworld.episode"] for span in roots) == sorted(sent(database))
        assert {span["resource"]["openinference.project.name"] for span in roots} == {"one"}
    assert all(sent(database).values()) and notes == []


def test_an_endpoint_that_is_away_is_reported_once_and_gets_everything_later(
    database: Database, notes: list[str]
) -> None:
    with OtlpReceiver() as receiver:
        port = receiver.port
    sender = SpanSender(f"http://127.0.0.1:{port}", notes.append)
    sender.send_new(database)
    eventually(lambda: notes)
    sender.send_new(database)
    with OtlpReceiver(port) as receiver:
        eventually(lambda: all(sent(database).values()))
        assert len(receiver.traces) == 8
    assert sender.close(5)
    assert len(notes) == 2
    assert "takes no spans" in notes[0] and "takes spans again" in notes[1]


def test_what_one_start_could_not_send_the_next_one_sends(database: Database, notes: list[str]) -> None:
    with OtlpReceiver() as receiver:
        receiver.answer = lambda spans: 503
        first = SpanSender(receiver.url, notes.append)
        first.send_new(database)
        eventually(lambda: notes)
        assert not first.close(5)
        assert not any(sent(database).values())
        receiver.answer = lambda spans: 200
        second = SpanSender(receiver.url, notes.append)
        second.send_new(database)
        assert second.close(10)
        assert len(receiver.traces) == 8
    assert all(sent(database).values())


def test_a_refused_episode_keeps_no_other_back(database: Database, notes: list[str]) -> None:
    refused = next(iter(sent(database)))
    with OtlpReceiver() as receiver:
        receiver.answer = lambda spans: (
            400 if any(span["attributes"].get("aworld.episode") == refused for span in spans) else 200
        )
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert sender.close(20)
        assert len(receiver.traces) == 7
        requests = receiver.requests
        again = SpanSender(receiver.url, notes.append)
        again.send_new(database)
        assert again.close(10)
        assert receiver.requests == requests
    times = sent(database)
    assert times.pop(refused) == 0 and all(times.values())
    assert len(notes) == 1 and refused in notes[0] and "400" in notes[0]


def test_a_damaged_episode_keeps_no_other_back(database: Database, notes: list[str]) -> None:
    damaged = next(iter(sent(database)))
    with database.begin() as connection:
        contents = tables.contents
        connection.execute(update(contents).where(contents.c.episode == damaged).values(data=b"no frame"))
    with OtlpReceiver() as receiver:
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert sender.close(10)
        assert len(receiver.traces) == 7
    assert len(notes) == 1 and damaged in notes[0]


def test_an_endpoint_that_wants_a_key_is_away_and_loses_nothing(database: Database, notes: list[str]) -> None:
    with OtlpReceiver() as receiver:
        receiver.answer = lambda spans: 401
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert not sender.close(5)
    assert set(sent(database).values()) == {None}
    assert len(notes) == 1 and "401" in notes[0]


def test_spans_that_an_endpoint_leaves_out_are_reported(database: Database, notes: list[str]) -> None:
    with OtlpReceiver() as receiver:
        receiver.rejected = 3
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert sender.close(10)
    assert len(notes) == 1 and "all spans but 3" in notes[0]


def test_an_endpoint_that_does_not_answer_holds_nothing_up(database: Database, notes: list[str]) -> None:
    asked, release = threading.Event(), threading.Event()

    def hang(spans: list[dict[str, Any]]) -> int:
        asked.set()
        release.wait(30)
        return 200

    with OtlpReceiver() as receiver:
        receiver.answer = hang
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert asked.wait(10)
        # The store can be written while a request waits.
        with database.begin() as connection:
            connection.execute(update(tables.episodes).values(cause="none"))
        assert not sender.close(0.1)
        release.set()
        eventually(lambda: any(sent(database).values()))


def test_episodes_are_sent_while_the_loader_loads(tmp_path: Path, notes: list[str]) -> None:
    folder = make_stored_run(tmp_path, steps=1, tasks=1, attempts=2)
    place = store_location(folder)
    assert place is not None
    with OtlpReceiver() as receiver:
        sender = SpanSender(receiver.url, notes.append)
        loader = StoreLoader(lambda: Database(place), notes.append, seconds=0.05, loaded=sender.send_new)
        loader.start()
        assert loader.close(max_seconds=10)
        assert sender.close(10)
        assert len(receiver.traces) == 4
    assert notes == []


def test_running_and_superseded_episodes_are_not_sent(database: Database, notes: list[str]) -> None:
    running, superseded, *others = sent(database)
    with database.begin() as connection:
        for name, status in ((running, "running"), (superseded, "superseded")):
            connection.execute(
                update(tables.episodes).where(tables.episodes.c.id == name).values(status=status)
            )
    with OtlpReceiver() as receiver:
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert sender.close(10)
        assert len(receiver.traces) == len(others) == 6
    with database.begin() as connection:
        count = select(func.count()).where(tables.episodes.c.spans_sent.is_(None))
        assert connection.execute(count).scalar_one() == 2


def test_headers_come_from_the_standard_variables(
    database: Database, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, other=1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "other=2")
    assert headers_from_environment() == {"api-key": "a b", "other": "2"}
    with OtlpReceiver() as receiver:
        sender = SpanSender(receiver.url, notes.append)
        sender.send_new(database)
        assert sender.close(10)
        assert receiver.headers[0]["api-key"] == "a b"
        assert receiver.headers[0]["Content-Type"] == "application/x-protobuf"


@pytest.mark.parametrize("value", ["secret", "a b=secret", "a=secret%0Ax"])
def test_headers_that_cannot_be_read_are_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS cannot be read") as error:
        headers_from_environment()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "target", "name"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces", "localhost:4318"),
        ("https://a.example/otlp/", "https://a.example/otlp/v1/traces", "a.example"),
        ("https://u:secret@a.example/v1/traces?x=secret", None, "a.example"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces", "[::1]:4318"),
    ],
)
def test_the_path_of_traces_is_added_and_the_name_has_no_secret(
    url: str, target: str | None, name: str
) -> None:
    address, shown = traces_url(url)
    assert address == (target or url)
    assert shown == f"The OTLP endpoint {name}"


@pytest.mark.parametrize("url", ["localhost:4318", "grpc://a:4317", "http://", "http://a:port"])
def test_an_address_of_something_else_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match=r"store\.otlp"):
        traces_url(url)


def test_a_missing_package_is_said_at_once(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(DependencyMissing, match=r"aworld-train\[otlp\]"):
        SpanSender("http://localhost:4318", notes.append)
