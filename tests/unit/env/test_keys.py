"""API keys: those that a server declares are read from a file, and a server without its keys is off."""

from pathlib import Path

import pytest

from aworld_train.env.keys import choose_servers, read_keys
from aworld_train.errors import UsageError
from aworld_train.serving.manifest import Manifest, ServerEntry

OPEN = ServerEntry(command=("run",))
MANIFEST = Manifest(
    "tools",
    {
        "open": OPEN,
        "search": ServerEntry(command=("run",), keys=("SEARCH_KEY", "SEARCH_ID"), optional_keys=("REGION",)),
    },
)
KEYS = {"SEARCH_KEY": "k", "SEARCH_ID": "i"}


def test_declared_variables_are_read_with_references_resolved_and_others_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "of the caller")
    file = tmp_path / "env"
    file.write_text("BASE=b\nSEARCH_KEY=${BASE}-k\nexport SEARCH_ID='i'\nREGION=\nOTHER=x\n# SEARCH_KEY=no\n")
    assert read_keys(MANIFEST, file) == {"SEARCH_KEY": "b-k", "SEARCH_ID": "i"}


def test_without_a_file_there_are_no_keys_whatever_the_caller_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "of the caller")
    assert read_keys(MANIFEST, None) == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file .*/nowhere"):
        read_keys(MANIFEST, tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"A=\xff\xfe\n")
    with pytest.raises(UsageError, match=r"/binary \(--env-file\) cannot be read"):
        read_keys(MANIFEST, tmp_path / "binary")


def test_a_server_without_its_keys_is_off_and_that_is_told() -> None:
    messages: list[str] = []
    assert choose_servers(MANIFEST, (), {"SEARCH_KEY": "k"}, messages.append) == ("open",)
    assert messages == ["search is off: SEARCH_ID not set (--env-file)."]
    assert choose_servers(MANIFEST, (), KEYS, messages.append) == ("open", "search")
    assert len(messages) == 1


def test_what_is_asked_for_is_what_runs() -> None:
    assert choose_servers(MANIFEST, ("search",), KEYS, print) == ("search",)
    assert choose_servers(MANIFEST, ("open",), {}, print) == ("open",)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("serch",), r"did you mean 'search'\? It has: open, search"),
        (("nothing",), r"has no server 'nothing'\."),
        (("open", "search"), r"'search' needs SEARCH_KEY, SEARCH_ID"),
    ],
)
def test_what_is_asked_for_and_cannot_run_is_refused(names: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        choose_servers(MANIFEST, names, {}, print)


def test_an_environment_none_of_whose_servers_can_run_is_refused() -> None:
    locked = Manifest("tools", {"search": MANIFEST.servers["search"]})
    with pytest.raises(UsageError, match="No server of tools has the keys it needs"):
        choose_servers(locked, (), {}, lambda _: None)
