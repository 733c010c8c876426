"""Conversations that a run exports are read back as the tasks that were played."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from aworld_train.dataset.builder import build
from aworld_train.episode.message import Message
from aworld_train.store.content import EpisodeContent, StoredAgent
from aworld_train.store.export.messages import MessagesWriter
from tests.stored_episodes import context_node, exported_run, sampled_node, stored_episode

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": '"1"'}]
TASKS = [
    {"id": "1", "query": "Wie weit?", "answer": "3,5 km", "scorer": "number", "answer_schema": "last_line"},
    {"id": "2", "query": MESSAGES, "answer": "1"},
    {
        "id": "4",
        "query": [*MESSAGES, {"role": "assistant", "content": "2"}, {"role": "user", "content": "So?"}],
        "answer": "1",
    },
    {"id": "3", "query": "{}?", "answer": ["Zürich", "Zurich"], "level": "2", "attachments": ["a.txt"]},
]


def as_parquet(lines: Path) -> tuple[str, Path]:
    datasets = pytest.importorskip("datasets")
    file = lines.with_suffix(".parquet")
    datasets.Dataset.from_json(str(lines), cache_dir=str(lines.parent)).to_parquet(file)
    return "parquet", file


def rows_of(source: str, file: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of the dataset that is built of a file, in the order of its lines."""
    build(source, out, files=[file], splits={"train": 1.0})
    rows: list[dict[str, Any]] = pq.read_table(out / "train.parquet").to_pylist()
    return sorted(rows, key=lambda row: row["extra_info"]["line"])


def exported(rows: list[dict[str, Any]], file: Path, *added: Message) -> str:
    """What is exported of a run that has played these rows, whose agent has added messages to theirs."""
    writer = MessagesWriter(file, exported_run())
    for row in rows:
        prompt = context_node(-1, [1], *(Message(**message) for message in row["prompt"]))
        nodes = [prompt, sampled_node(0, "Hm.", [2])]
        for message in added:
            nodes += [context_node(len(nodes) - 1, [3], message), sampled_node(len(nodes), "So.", [4])]
        agent = StoredAgent("agent", tuple(nodes), ())
        episode = stored_episode(EpisodeContent((agent,)))
        head = replace(
            episode.head, source=row["data_source"], correct_answer=row["reward_model"]["ground_truth"]
        )
        writer.add(replace(episode, head=head, task_row=row))
    writer.finish()
    return file.read_text("utf-8")


@pytest.mark.parametrize("added", [(), (Message("user", "Sure?"), Message("user", "Go on."))])
@pytest.mark.parametrize("read", [lambda lines: ("jsonl", lines), as_parquet], ids=["lines", "datasets"])
def test_an_export_that_is_built_is_exported_alike(
    read: Callable[[Path], tuple[str, Path]], added: tuple[Message, ...], tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    rows = rows_of("jsonl", tmp_path / "tasks.jsonl", tmp_path / "first")
    text = exported(rows, tmp_path / "first.jsonl", *added)
    again = rows_of(*read(tmp_path / "first.jsonl"), tmp_path / "again")
    assert len(again) == len(TASKS)
    assert exported(again, tmp_path / "again.jsonl", *added) == text
    for row in (*rows, *again):
        # Where the row was read; and the question without its files, which the prompt alone has.
        del row["extra_info"]["file"], row["extra_info"]["index"], row["extra_info"]["question"]
    assert again == rows
