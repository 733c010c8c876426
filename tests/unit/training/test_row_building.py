"""Token rows of stored episodes are their stored ids and masks; what gives none is counted by reason."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset.row_selection import Choice
from aworld_train.errors import DatasetError, DatasetNotFound, UsageError
from aworld_train.model.tiny import SHIPPED
from aworld_train.store.content import EpisodeContent
from aworld_train.training.recorded_run import open_run
from aworld_train.training.row_building import RowSources, build_rows
from tests.stored_runs import make_stored_run, open_store, row_mask, row_tokens

ALL = Choice(held_out=0.25)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose tokenizer is not known, since the ids of a made run spell nothing."""
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


def test_rows_are_the_ids_and_masks_of_the_episodes_that_meet_the_condition(
    tmp_path: Path, model: Path
) -> None:
    run = open_run(str(make_stored_run(tmp_path / "runs")), tmp_path)
    out = tmp_path / "rows"
    report = build_rows(RowSources(model, [run], "reward=1 and phase=train"), ALL, out)
    store = open_store(run.path)
    assert store is not None
    ids = store.ids("reward=1 and phase=train")
    rows = [row for split in ("train", "val") for row in pq.read_table(out / f"{split}.parquet").to_pylist()]
    assert sorted(row["origin"] for row in rows) == sorted(f"one/{episode}" for episode in ids)
    for row in rows:
        episode = store.episode(row["origin"].partition("/")[2])
        assert isinstance(episode.content, EpisodeContent)
        assert row["input_ids"] == row_tokens(episode.content, 0)
        assert row["loss_mask"] == row_mask(episode.content, 0)
        assert (row["task"], row["reward"]) == (episode.head.task, 1.0)
    assert (report.read, report.dropped) == (len(ids), {})
    assert {split: facts.rows for split, facts in report.splits.items()} == {"train": 18, "val": 6}
    manifest = json.loads((out / "dataset.json").read_text())
    assert (manifest["runs"], manifest["where"]) == (["one"], "reward=1 and phase=train")


def test_episodes_without_content_or_tokens_are_counted(tmp_path: Path, model: Path) -> None:
    kept = open_run(str(make_stored_run(tmp_path / "runs", "kept")), tmp_path)
    figures = open_run(str(make_stored_run(tmp_path / "runs", "figures", keep="failures")), tmp_path)
    report = build_rows(RowSources(model, [kept, figures], "reward=1"), ALL, tmp_path / "rows")
    assert report.dropped == {"its tokens are not kept": 32}
    with pytest.raises(DatasetError, match="There is nothing to train on: 32 episodes"):
        build_rows(RowSources(model, [figures], "reward=1"), ALL, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_ids_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    run = open_run(str(make_stored_run(tmp_path / "runs")), tmp_path)
    with pytest.raises(DatasetError, match="do not spell its messages with the tokenizer of"):
        build_rows(RowSources(SHIPPED, [run], "reward=1"), ALL, tmp_path / "rows")


def test_a_condition_and_a_file_that_are_wrong_are_said(tmp_path: Path, model: Path) -> None:
    run = open_run(str(make_stored_run(tmp_path / "runs")), tmp_path)
    with pytest.raises(UsageError, match="phase is never 'trian'"):
        build_rows(RowSources(model, [run], "phase=trian"), ALL, tmp_path / "rows")
    shutil.copytree(SHIPPED, model, dirs_exist_ok=True)
    file = tmp_path / "talks.jsonl"
    with pytest.raises(DatasetNotFound):
        build_rows(RowSources(model, files=[file]), ALL, tmp_path / "rows")
    file.write_text('{"messages": []}\n[1]\n')
    with pytest.raises(DatasetError, match=r"talks\.jsonl is not a file of conversations.*line 2"):
        build_rows(RowSources(model, files=[file]), ALL, tmp_path / "rows")


def test_conversations_of_one_task_are_split_together(tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    talks = [
        {
            "messages": [
                {"role": "user", "content": f"What is {task}+1?"},
                {"role": "assistant", "content": f"<answer>{task}{attempt}</answer>"},
            ],
            "level": 1 + task % 2,
        }
        for task in range(8)
        for attempt in range(2)
    ]
    file.write_text(
        "".join(
            json.dumps(talk) + "\n" for talk in [*talks, {"messages": [{"role": "user", "content": "?"}]}]
        )
    )
    out = tmp_path / "rows"
    report = build_rows(RowSources(SHIPPED, files=[file]), ALL, out)
    assert report.dropped == {"the assistant says nothing in answer to a message": 1}
    rows = {split: pq.read_table(out / f"{split}.parquet").to_pylist() for split in ("train", "val")}
    assert {split: len(of_split) for split, of_split in rows.items()} == {"train": 12, "val": 4}
    assert not {row["task"] for row in rows["train"]} & {row["task"] for row in rows["val"]}
    assert {row["level"] for row in rows["train"]} == {"1", "2"}
