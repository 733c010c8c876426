"""Files of token rows: what is written is read, and a model with another vocabulary is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from aworld_train.dataset.token_rows import (
    TokenRow,
    check_token_rows,
    read_token_rows,
    token_rows_facts,
    vocabulary_digest,
    write_token_rows,
)
from aworld_train.errors import DatasetError, DatasetNotFound
from tests.stored_runs import task_row

ROWS = [TokenRow([5, 6, 7], [0, 1, 1], "a", "run/1", "2", 1.0), TokenRow([5, 8], [0, 1], "b", "file:3")]


def model(folder: Path, vocab: Any = None, added: list[dict[str, Any]] | None = None, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    content = {"model": {"vocab": vocab or {"a": 0, "b": 1}}, "added_tokens": added or [], **more}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_what_is_written_is_read_with_its_facts(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    facts = write_token_rows(file, ROWS, "v")
    assert (facts.rows, facts.tokens, facts.trained, facts.longest, facts.vocabulary) == (2, 5, 3, 3, "v")
    assert token_rows_facts(file) == facts
    first = {"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}
    assert read_token_rows([file, file])[:3] == [first, {"input_ids": [5, 8], "loss_mask": [0, 1]}, first]
    other = tmp_path / "val.parquet"
    write_token_rows(other, ROWS[:1], "v")
    assert check_token_rows([file, other], None, 3).rows == 3


def test_other_files_and_too_long_rows_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, tasks = tmp_path / "train.parquet", tmp_path / "tasks.parquet"
    write_token_rows(file, ROWS, "v")
    pq.write_table(pa.Table.from_pylist([task_row(0, 1, 2)]), tasks)
    with pytest.raises(DatasetError, match="has a row of 3 tokens, and the recipe takes 2"):
        check_token_rows([file], None, 2)
    with pytest.raises(DatasetError, match="has no token rows"):
        check_token_rows([tasks], None, 9)
    with pytest.raises(DatasetNotFound):
        check_token_rows([tmp_path / "none.parquet"], None, 9)


def test_a_vocabulary_is_its_tokens_by_id_whatever_else_its_file_says(tmp_path: Path) -> None:
    one = vocabulary_digest(model(tmp_path / "one"))
    assert one == vocabulary_digest(model(tmp_path / "same", {"b": 1, "a": 0}, truncation={"max_length": 3}))
    assert one == vocabulary_digest(model(tmp_path / "listed", [["a", -1.0], ["b", -2.0]]))
    assert one != vocabulary_digest(model(tmp_path / "other", {"a": 1, "b": 0}))
    assert one != vocabulary_digest(model(tmp_path / "more", added=[{"id": 2, "content": "<end>"}]))
    assert vocabulary_digest(tmp_path) == ""


def test_rows_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    file, own = tmp_path / "train.parquet", model(tmp_path / "own")
    write_token_rows(file, ROWS, vocabulary_digest(own))
    assert check_token_rows([file], own, 3).rows == 2
    with pytest.raises(DatasetError, match="of another vocabulary than that of the model"):
        check_token_rows([file], model(tmp_path / "other", {"a": 1, "b": 0}), 3)
