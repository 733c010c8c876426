"""An export is there whole or not at all."""

import json
from pathlib import Path

import pytest

from aworld_train.errors import DiskFull, ExportError, UsageError
from aworld_train.store.export.exporting import export
from aworld_train.store.export.formats import ExportFormat
from aworld_train.store.export.messages import MessagesWriter
from aworld_train.store.reading import Store
from aworld_train.store.redaction import storable
from tests.stored_episodes import exported_run
from tests.stored_runs import make_stored_run, open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stored_run(tmp_path_factory.mktemp("runs"), steps=1, tasks=2)


@pytest.fixture
def store(folder: Path) -> Store:
    opened = open_store(folder)
    assert opened is not None
    return opened


@pytest.mark.parametrize("form", ExportFormat)
def test_every_format_is_written_whole(form: ExportFormat, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "out.eval"
    seen: list[tuple[int, int]] = []
    counts = export(store, exported_run(), form, file, progress=lambda *numbers: seen.append(numbers))
    assert (counts.episodes, counts.without_content, counts.bytes) == (16, 0, file.stat().st_size)
    assert counts.entries == (24 if form is ExportFormat.parquet else 16)
    assert seen == [(number, 16) for number in range(1, 17)]
    assert list(tmp_path.iterdir()) == [file]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_condition_chooses_episodes(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "right.jsonl"
    counts = export(store, exported_run(), ExportFormat.messages, file, condition="reward=1 and phase=train")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert counts.episodes == len(lines) == 4
    assert {line["metadata"]["reward"] for line in lines} == {1.0}


def test_an_export_of_nothing_is_an_error_and_makes_no_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no episode that meets 'reward=7'") as error:
        export(store, exported_run(), ExportFormat.parquet, tmp_path / "x", condition="reward=7")
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_episodes_whose_texts_are_not_kept_are_counted(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path / "runs", steps=1, tasks=1, keep="failures")
    store = open_store(folder)
    assert store is not None
    counts = export(store, exported_run(), ExportFormat.messages, tmp_path / "x")
    assert (counts.episodes, counts.without_content) == (4, 4)
    with pytest.raises(ExportError, match="of the 4 episodes of one that meet 'reward=1', the texts of none"):
        export(store, exported_run(), ExportFormat.messages, tmp_path / "y", condition="reward=1")


def test_an_existing_file_is_replaced_only_if_that_is_wanted(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        export(store, exported_run(), ExportFormat.messages, file)
    assert file.read_text() == "mine"
    export(store, exported_run(), ExportFormat.messages, file, force=True)
    assert file.read_text() != "mine" and list(tmp_path.iterdir()) == [file]


def test_a_file_that_somebody_makes_meanwhile_is_not_replaced(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "out"
    with pytest.raises(UsageError, match="exists"):
        export(
            store,
            exported_run(),
            ExportFormat.messages,
            file,
            progress=lambda done, total: file.write_text("theirs") and None,
        )
    assert file.read_text() == "theirs" and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("form", ExportFormat)
def test_an_export_that_fails_leaves_nothing(form: ExportFormat, store: Store, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(store, exported_run(), form, tmp_path / "out.eval", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: MessagesWriter) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MessagesWriter, "finish", full)
    with pytest.raises(DiskFull, match="No space left"):
        export(store, exported_run(), ExportFormat.messages, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "form", "why"),
    [
        ("out.json", ExportFormat.inspect, r"has to end with \.eval"),
        ("none/out", ExportFormat.atif, "No such folder"),
        (".", ExportFormat.atif, "is a folder"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused(
    name: str, form: ExportFormat, why: str, store: Store, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        export(store, exported_run(), form, tmp_path / name)


def test_texts_that_are_hostile_to_formats_are_exported(tmp_path: Path) -> None:
    say = '</script>\u202e\x1b[31m\n\r\u2028\0"\\'
    store = open_store(make_stored_run(tmp_path / "runs", steps=0, tasks=1, say=say))
    assert store is not None
    for form in ExportFormat:
        export(store, exported_run(), form, tmp_path / f"{form}.eval")
    text = (tmp_path / "messages.eval").read_bytes().decode()
    # By any reading of what a line is.
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 4
    assert storable(say) in lines[0]["messages"][0]["content"]


def test_an_episode_is_found_by_its_id_or_the_beginning_of_it(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    name = store.ids("attempt=0 and step=1")[0]
    assert store.episode(name).head.id == store.episode(name[:14]).head.id == name
    with pytest.raises(UsageError, match="Unknown episode 'none'"):
        store.episode("none")
