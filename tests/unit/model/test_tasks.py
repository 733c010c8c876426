"""The tasks that the tiny model learns from and is measured on: disjoint, only arithmetic, from files or generated."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.errors import ModelError, UsageError
from aworld_train.model import tasks
from aworld_train.model.transcripts import CHARACTERS, ArithmeticTask


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    columns = [
        {"prompt": [{"role": "user", "content": question}], "reward_model": {"ground_truth": answer}}
        for question, answer in rows
    ]
    pq.write_table(pa.Table.from_pylist(columns), path)
    return path


def sums(first: int, last: int) -> list[tuple[str, str]]:
    return [(f"What is {n}+{n}?", str(2 * n)) for n in range(first, last)]


def test_rows_that_ask_something_else_are_left_aside(tmp_path: Path) -> None:
    rows = [("What is 48/2?", "24"), ("Who are you?", "1"), ("What is 1/0?", "none"), ("What is 48/2?", "24")]
    assert tasks.read(write(tmp_path / "a.parquet", rows)) == [ArithmeticTask("48/2", "24")]


def test_a_system_message_before_the_question_is_no_hindrance(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}]
    row = {"prompt": messages, "reward_model": {"ground_truth": "2"}}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    assert tasks.read(tmp_path / "a.parquet") == [ArithmeticTask("1+1", "2")]


def test_nothing_that_is_measured_is_shown(tmp_path: Path) -> None:
    train, val = write(tmp_path / "t.parquet", sums(1, 200)), write(tmp_path / "v.parquet", sums(100, 180))
    for files in ((train, val), (train, None), (None, val), (None, None)):
        shown, measured = tasks.gather(*files, seed=0)
        assert not {task.expression for task in shown} & {task.expression for task in measured}
        assert len(measured) >= tasks.MIN_VAL


def test_the_files_tasks_are_shown_beside_generated_ones(tmp_path: Path) -> None:
    train, val = write(tmp_path / "t.parquet", sums(1000, 1100)), write(tmp_path / "v.parquet", sums(1, 50))
    shown, measured = tasks.gather(train, val, seed=0)
    assert set(tasks.read(train)) <= set(shown)
    assert len(shown) > 1000
    assert set(measured) == set(tasks.read(val))


def test_the_same_seed_gathers_the_same_tasks_in_the_same_order() -> None:
    assert tasks.gather(None, None, seed=3) == tasks.gather(None, None, seed=3)
    assert tasks.gather(None, None, seed=3) != tasks.gather(None, None, seed=4)


def test_generated_tasks_use_only_the_characters_that_have_a_token_of_their_own() -> None:
    shown, measured = tasks.gather(None, None, seed=0)
    assert all(set(task.expression + task.value) <= set(CHARACTERS) for task in [*shown, *measured])


def test_too_few_tasks_to_measure_on_are_refused_with_their_number(tmp_path: Path) -> None:
    val = write(tmp_path / "v.parquet", sums(1, 10))
    with pytest.raises(ModelError, match=r"v\.parquet has 9 tasks .* at least 32"):
        tasks.gather(None, val, seed=0)


def test_a_training_file_without_arithmetic_is_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "t.parquet", [("Who are you?", "1")])
    with pytest.raises(ModelError, match=r"t\.parquet has 0 tasks"):
        tasks.gather(train, write(tmp_path / "v.parquet", sums(1, 100)), seed=0)


@pytest.mark.parametrize("kind", ["no parquet", "other columns", "missing"])
def test_a_file_that_is_no_dataset_is_a_usage_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.parquet"
    if kind == "no parquet":
        path.write_text("hello")
    elif kind == "other columns":
        pq.write_table(pa.table({"prompt": [1], "reward_model": [2]}), path)
    with pytest.raises(UsageError, match=r"a\.parquet cannot be read as a dataset"):
        tasks.read(path)
