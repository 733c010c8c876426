"""Rows that cannot be trained on are reported before training, in one paragraph that names the file and the row."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build, check_file
from aworld_train.dataset.check import find_row, first_rows
from aworld_train.dataset.schema import SCHEMA, VERSION_KEY
from aworld_train.errors import DatasetError, ModelError


def good(index: int = 0) -> dict[str, Any]:
    return {
        "data_source": "arithmetic",
        "agent_name": "mcp_agent",
        "prompt": [{"role": "user", "content": f"What is {index}+1?"}],
        "ability": "arithmetic",
        "reward_model": {"style": "rule", "ground_truth": str(index + 1)},
        "extra_info": {
            "index": index,
            "id": f"task-{index}",
            "split": "train",
            "file": "",
            "line": 0,
            "question": None,
            "expression": f"{index}+1",
            "scorer": "number",
            "answer_schema": "answer",
            "level": None,
            "attachments": None,
        },
    }


def write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = SCHEMA) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def test_a_good_file_is_summarised(tmp_path: Path) -> None:
    report = build("arithmetic", tmp_path / "out", limit=20)
    summary = check_file(report.out / "train.parquet")
    assert summary.to_json() == {
        "path": str(report.out / "train.parquet"),
        "rows": 18,
        "data_sources": {"arithmetic": 18},
        "agents": {"mcp_agent": 18},
        "splits": {"train": 18},
        "scorers": {"number": 18},
        "answer_schemas": {"answer": 18},
        "levels": {},
        "several_answers": 0,
        "schema_version": 2,
        "bytes": (report.out / "train.parquet").stat().st_size,
        "prompt_tokens": None,
    }


def test_a_file_from_elsewhere_with_more_columns_in_another_order_is_good(tmp_path: Path) -> None:
    foreign = {
        "extra": 1,
        "prompt": [
            {"content": "Solve it.", "role": "system", "name": None},
            {"content": "1+1?", "role": "user"},
        ],
        "extra_info": {"split": "test", "index": 5, "answer": "It is two."},
        "reward_model": {"ground_truth": "2", "style": "rule"},
        "data_source": "openai/gsm8k",
    }
    summary = check_file(write(tmp_path / "foreign.parquet", [foreign], schema=None))
    assert (summary.rows, summary.schema_version, summary.agents) == (1, None, {})


def test_what_a_file_from_elsewhere_says_in_numbers_is_counted_and_its_empty_names_are_none(
    tmp_path: Path,
) -> None:
    info = {"index": 0, "level": 3, "split": ["a"], "scorer": "", "answer_schema": ""}
    summary = check_file(write(tmp_path / "theirs.parquet", [{**good(), "extra_info": info}], schema=None))
    assert (summary.levels, summary.splits, summary.scorers, summary.answer_schemas) == ({"3": 1}, {}, {}, {})


def changed(**columns: Any) -> list[dict[str, Any]]:
    return [good(0), {**good(1), **columns}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        (changed(data_source=None), "row 1 has no data_source"),
        (changed(prompt=None), "row 1 has an empty prompt"),
        (changed(prompt=[]), "row 1 has an empty prompt"),
        (changed(prompt=[{"role": "human", "content": "hi"}]), "role is 'human'"),
        (changed(prompt=[{"role": "user", "content": " "}]), "empty user message"),
        (changed(prompt=[{"role": "user", "content": None}]), "empty user message"),
        (changed(prompt=[{"role": "system", "content": "Be kind."}]), "ends with a message of the system"),
        (changed(reward_model=None), "row 1 has no answer"),
        (changed(reward_model={"style": "rule", "ground_truth": " "}), "row 1 has no answer"),
        (changed(reward_model={"style": "rule", "ground_truth": "?"}), "kept hidden"),
        (changed(extra_info=None), r"row 1 has no extra_info\.index"),
        (changed(extra_info={"index": None}), r"row 1 has no extra_info\.index"),
        (changed(extra_info={"index": 0}), r"row 1 has the extra_info\.index 0 of row 0"),
        (
            changed(extra_info={"index": 1, "scorer": "gaja"}),
            r"row 1 has an unknown scorer 'gaja'.*Did you mean 'gaia'\?$",
        ),
        (
            changed(extra_info={"index": 1, "answer_schema": "box"}),
            "unusable answer_schema 'box'.*Did you mean 'boxed'",
        ),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    path = write(tmp_path / "bad.parquet", rows)
    with pytest.raises(DatasetError, match=message) as caught:
        check_file(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("prompt", "What is 1+1?", "'prompt' is string, not a list of messages"),
        ("prompt", ["What is 1+1?"], "not a list of messages"),
        ("reward_model", "2", "not a struct with the text 'ground_truth'"),
        ("reward_model", {"ground_truth": 2}, "not a struct with the text 'ground_truth'"),
        ("extra_info", {"split": "train"}, "not a struct with the integer 'index'"),
        ("extra_info", {"index": "0"}, "not a struct with the integer 'index'"),
        ("data_source", 3, "'data_source' is int64, not text"),
        ("agent_name", 3, "'agent_name' is int64, not text"),
        ("extra_info", {"index": 0, "scorer": 3}, r"'extra_info\.scorer' is int64, not text"),
        (
            "extra_info",
            {"index": 0, "answer_schema": ["a"]},
            r"'extra_info\.answer_schema' is list.*, not text",
        ),
    ],
)
def test_a_column_of_another_type_is_named(tmp_path: Path, column: str, value: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        check_file(write(tmp_path / "bad.parquet", [{**good(), column: value}], schema=None))


@pytest.mark.parametrize("column", ["data_source", "prompt", "reward_model", "extra_info"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    with pytest.raises(DatasetError, match=f"has no column '{column}'"):
        check_file(write(tmp_path / "bad.parquet", [good()], SCHEMA.remove(SCHEMA.get_field_index(column))))


def test_a_file_of_a_later_schema_version_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "later.parquet", [good()], SCHEMA.with_metadata({VERSION_KEY: b"3"}))
    with pytest.raises(DatasetError, match="schema version 3"):
        check_file(path)


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="No such dataset file"):
        check_file(tmp_path / "nowhere.parquet")
    with pytest.raises(DatasetError, match="is a directory"):
        check_file(tmp_path)
    (tmp_path / "text.parquet").write_text("question,answer\n")
    with pytest.raises(DatasetError, match="is not a parquet file"):
        check_file(tmp_path / "text.parquet")


def test_a_file_whose_data_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    write(path, [good(i) for i in range(3000)])
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = b"\xff" * (len(content) // 2 - 100)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="cannot be read"):
        check_file(path)


def test_every_row_of_a_large_file_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "large.parquet", [*(good(i) for i in range(10_000)), good(17)])
    with pytest.raises(DatasetError, match=r"row 10000 has the extra_info\.index 17 of row 17"):
        check_file(path)


def test_the_first_rows_come_back_as_plain_values(tmp_path: Path) -> None:
    path = write(tmp_path / "three.parquet", [good(i) for i in range(3)])
    assert first_rows(path, 2) == [good(0), good(1)]
    assert len(first_rows(path, 99)) == 3


def test_a_task_is_found_by_its_index_wherever_it_stands(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.parquet", [good(index) for index in (7, 3, 5000, 4)])
    assert find_row(file, None) == good(7)
    for index in (7, 3, 5000, 4):
        assert find_row(file, index) == good(index)


def test_a_task_is_found_beyond_the_rows_that_are_read_at_a_time(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.parquet", [good(index) for index in range(5000)])
    assert find_row(file, 4999)["extra_info"]["index"] == 4999


@pytest.mark.parametrize("index", [0, 6, -1])
def test_a_task_that_is_not_there_is_said_with_those_that_are(tmp_path: Path, index: int) -> None:
    file = write(tmp_path / "tasks.parquet", [good(index) for index in (7, 3, 5)])
    with pytest.raises(DatasetError, match=rf"tasks\.parquet has no task {index}: its tasks are 3 to 7\."):
        find_row(file, index)


def test_a_task_of_no_file_or_an_empty_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none\.parquet"):
        find_row(tmp_path / "none.parquet", 0)
    empty = write(tmp_path / "empty.parquet", [])
    for index in (None, 0):
        with pytest.raises(DatasetError, match=r"empty\.parquet has no rows\.$"):
            find_row(empty, index)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tests.models import shipped_tokenizer

    folder = tmp_path_factory.mktemp("model")
    shipped_tokenizer().save_pretrained(folder)
    return folder


def test_prompts_are_measured_in_tokens_of_a_model(tmp_path: Path, model: Path) -> None:
    from transformers import AutoTokenizer

    rows = [good(i) for i in range(300)]
    rows[7]["prompt"][0]["content"] = "What is " + "1+" * 100 + "1?"
    file = write(tmp_path / "tasks.parquet", rows)
    tokenizer = AutoTokenizer.from_pretrained(model)
    lengths = sorted(
        len(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False))
        for row in rows
    )
    found = check_file(file, model, max_prompt_tokens=lengths[-2]).prompt_tokens
    assert found is not None
    assert (found.percentiles["max"], found.most, found.longer) == (lengths[-1], lengths[-2], 1)
    assert found.percentiles["p50"] == lengths[150] and found.percentiles["p99"] == lengths[296]
    assert check_file(file, model).to_json()["prompt_tokens"]["longer"] == 0


def test_a_model_that_cannot_count_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.parquet", [good()])
    with pytest.raises(ModelError, match="No such model directory"):
        check_file(file, tmp_path / "nowhere")
    pytest.importorskip("transformers")
    (tmp_path / "empty").mkdir()
    lines: list[str] = []
    for files in ((), ("tokenizer.json",)):
        for name in files:
            (tmp_path / "empty" / name).write_text("{}")
        assert not lines
        with pytest.raises(ModelError, match=r"no tokenizer that can be loaded: .*its tokenizer\.json"):
            check_file(file, tmp_path / "empty", note=lines.append)
    with pytest.raises(DatasetError, match="No such dataset file"):
        check_file(tmp_path / "nowhere", tmp_path / "empty", note=lines.append)
    assert lines == [f"Loading the tokenizer of {tmp_path / 'empty'}."]
