"""The records of what is up: private, whole, and changed by one at a time."""

import json
import os
import stat
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aworld_train.env import address, down, find, registry, status, up
from aworld_train.env.record import Credentials, Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.serving import tokens

SECRET = tokens.new_secret()
RECORD = Record(
    name="tools",
    backend="process",
    host="127.0.0.1",
    port=1,
    workers=2,
    credentials=Credentials(
        secret=SECRET, token_id="t", issued=1_800_000_000, expires=1_800_000_060, desktop_password="pa55word"
    ),
    directory="/somewhere",
    fingerprint="f",
    machine=address.machine(),
    owner=ProcessIdentity(7, "unix/1.5"),
    ready=True,
    starter=ProcessIdentity(8, "unix/2.5"),
    handle={"pid": 1, "started": "unix/0.5", "folder": "/nowhere"},
)


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "state"))
    # What is up on an engine of this machine is no part of these tests.
    monkeypatch.setattr("aworld_train.env.backend_choice.engine_answers", lambda: False)


def test_a_record_comes_back_as_it_was_written() -> None:
    registry.write(RECORD)
    ownerless = replace(RECORD, name="other", owner=None, starter=None)
    registry.write(ownerless)
    assert registry.read("tools") == find("tools") == RECORD
    assert registry.read("other") == ownerless
    assert registry.names() == ["other", "tools"]


def test_nobody_else_can_read_a_record() -> None:
    registry.write(RECORD)
    assert stat.S_IMODE(registry.record_path("tools").stat().st_mode) == 0o600
    assert stat.S_IMODE(registry.folder().stat().st_mode) == 0o700


def test_one_whose_gateway_is_not_there_yet_is_shown_and_has_no_token() -> None:
    registry.write(replace(RECORD, credentials=replace(RECORD.credentials, secret="")))
    (shown,) = status()
    assert (shown.name, find("tools").connection.token) == ("tools", "")


def test_no_secret_is_in_the_repr_or_in_what_status_shows() -> None:
    registry.write(RECORD)
    (shown,) = status()
    for text in (repr(RECORD), repr(RECORD.connection), json.dumps(asdict(shown))):
        assert SECRET not in text
        assert "pa55word" not in text
        assert RECORD.connection.token not in text


def test_the_connection_is_the_same_whoever_reads_the_record() -> None:
    registry.write(RECORD)
    again = registry.read("tools")
    assert again is not None
    assert again.connection == RECORD.connection
    assert (RECORD.connection.mcp_url, RECORD.health) == (
        "http://127.0.0.1:1/mcp",
        "http://127.0.0.1:1/health",
    )
    assert (RECORD.connection.vnc_url, RECORD.connection.vnc_password) == (
        "http://127.0.0.1:1/vnc/",
        "pa55word",
    )
    assert (RECORD.connection.started_at, RECORD.connection.expires_at) == (
        "2027-01-15T08:00:00+00:00",
        "2027-01-15T08:01:00+00:00",
    )


def test_without_a_desktop_there_is_no_address_of_one() -> None:
    plain = replace(RECORD, credentials=replace(RECORD.credentials, desktop_password=""))
    assert (plain.connection.vnc_url, plain.connection.vnc_password) == (None, None)


def test_another_token_has_its_own_name_and_limits() -> None:
    now = int(time.time())
    own = replace(RECORD, credentials=replace(RECORD.credentials, issued=now, expires=now + 60))
    first, second = own.token(now + 30, sessions=2), own.token(now + 30, sessions=2)
    passes = [tokens.verify(SECRET, "tools", token) for token in (own.token(), first, second)]
    assert [one.sessions for one in passes] == [None, 2, 2]
    assert passes[0].token_id == "t"
    assert len({one.token_id for one in passes}) == 3


def test_what_was_never_written_is_none() -> None:
    assert registry.read("tools") is None
    assert registry.names() == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a" * 64, "a b", "ä"])
def test_a_name_that_is_no_plain_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        registry.read(name)


@pytest.mark.skipif(sys.platform != "linux", reason="no PID namespaces")
def test_one_that_ends_with_a_process_of_another_container_is_elsewhere() -> None:
    boot, namespace, ticks = ProcessIdentity.of(os.getpid()).started.split("/")
    hidden = ProcessIdentity(7, f"{boot}/{int(namespace) + 1}/{ticks}")
    registry.write(replace(RECORD, owner=hidden))
    registry.write(replace(RECORD, name="by-hand", owner=None, starter=hidden))
    assert [(shown.name, shown.state) for shown in status()] == [("by-hand", "dead"), ("tools", "elsewhere")]


def test_a_record_of_before_processes_had_identities_cannot_be_read() -> None:
    registry.write(RECORD)
    stored = json.loads(registry.record_path("tools").read_text())
    stored["owner"] = {"pid": 7, "started": 1.5}
    registry.record_path("tools").write_text(json.dumps(stored))
    with pytest.raises(EnvironmentFailure, match=r"tools\.json cannot be read"):
        registry.read("tools")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"connection": {}}', '{"owner": null}', '{"credentials": null}']
)
def test_a_damaged_record_is_an_error_that_names_the_file(text: str) -> None:
    registry.record_path("tools").write_text(text)
    with pytest.raises(EnvironmentFailure, match=r"tools\.json cannot be read"):
        registry.read("tools")


def test_a_state_folder_that_cannot_be_made_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFailure, match="set AWORLD_TRAIN_STATE"):
        registry.folder()


def test_one_at_a_time_changes_an_environment_and_leaves_no_lock_behind() -> None:
    with (
        registry.locked("tools", 0),
        registry.locked("other", 0),
        pytest.raises(EnvironmentFailure, match="starting or stopping 'tools'"),
        registry.locked("tools", 0),
    ):
        raise AssertionError("the lock was given twice")
    with registry.locked("tools", 0):
        pass
    assert list(registry.folder().iterdir()) == []


def test_what_runs_on_another_machine_is_told_and_left_alone() -> None:
    registry.write(replace(RECORD, machine="another-machine"))
    assert [one.state for one in status()] == ["elsewhere"]
    for change in (lambda: down("tools"), lambda: up("calculator-mcp-server", name="tools")):
        with pytest.raises(EnvironmentFailure, match="was started on another-machine"):
            change()
    assert registry.read("tools") is not None
