"""A build counts everything that it reads, repeats byte for byte, and never destroys files that it did not write."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import BuildReport, build, check_file
from aworld_train.dataset.merging import CONFLICT
from aworld_train.dataset.schema import SCHEMA, SCHEMA_VERSION
from aworld_train.errors import DatasetError, UsageError
from tests.locations import GSM8K_ODD


def rows(report: BuildReport, split: str) -> list[dict[str, Any]]:
    return pq.read_table(report.out / f"{split}.parquet").to_pylist()


def test_what_is_seen_is_kept_or_dropped_and_what_is_kept_is_accounted_for(tmp_path: Path) -> None:
    for tasks in ("annotations", "questions"):
        report = build("gsm8k", tmp_path / tasks, files=[GSM8K_ODD], tasks=tasks, limit=12)
        assert report.seen == report.kept + sum(report.dropped.values())
        assert report.kept == sum(report.rows.values()) + report.merged + report.against + report.left_over
        listed = [json.loads(line) for line in (report.out / "dropped.jsonl").read_text("utf-8").splitlines()]
        assert Counter(item["reason"] for item in listed) == report.dropped
        assert {item["file"] for item in listed} == {"gsm8k_odd.jsonl"}
        assert all(item["line"] >= 1 for item in listed)


def test_the_odd_rows_give_these_counts(tmp_path: Path) -> None:
    report = build("gsm8k", tmp_path / "out", files=[GSM8K_ODD])
    # 48/2 comes three times and 2*4 twice.
    assert (report.seen, report.kept, report.merged) == (61, 28, 3)
    assert report.rows == {"train": 22, "val": 3}
    assert report.left_over == 0


def test_the_same_question_is_one_task_and_another_answer_to_it_is_a_conflict(tmp_path: Path) -> None:
    report = build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], tasks="questions")
    assert report.merged == 1
    assert report.dropped[CONFLICT] == 1


def test_rows_have_the_schema_of_verl_and_an_index_of_their_own(tmp_path: Path) -> None:
    report = build("gsm8k", tmp_path / "out", files=[GSM8K_ODD])
    every = [row for split in report.rows for row in rows(report, split)]
    assert [row["extra_info"]["index"] for row in every] == list(range(len(every)))
    row = next(row for row in every if row["extra_info"]["expression"] == "48/2")
    index, split = row["extra_info"]["index"], row["extra_info"]["split"]
    assert row == {
        "data_source": "gsm8k_annotations",
        "agent_name": "mcp_agent",
        "prompt": [{"role": "user", "content": "What is 48/2?"}],
        "ability": "arithmetic",
        "reward_model": {"style": "rule", "ground_truth": "24"},
        "extra_info": {
            "index": index,
            "id": hashlib.sha256(b"48/2").hexdigest()[:16],
            "split": split,
            "file": "gsm8k_odd.jsonl",
            "line": 1,
            "question": None,
            "expression": "48/2",
            "scorer": "number",
            "answer_schema": "answer",
            "level": None,
            "attachments": None,
        },
    }
    assert pq.read_schema(report.out / "train.parquet").equals(SCHEMA, check_metadata=True)
    assert pq.ParquetFile(report.out / "train.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_same_input_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    first, again, other = (
        build("gsm8k", tmp_path / name, files=[GSM8K_ODD], seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for name in ("train.parquet", "val.parquet", "dropped.jsonl", "dataset.json"):
        assert (first.out / name).read_bytes() == (again.out / name).read_bytes()
    assert first.outputs == again.outputs
    assert first.outputs["train.parquet"] != other.outputs["train.parquet"]


def test_dataset_json_says_what_went_in_and_what_came_out(tmp_path: Path) -> None:
    report = build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], seed=7, splits={"test": 1.0}, limit=5)
    manifest = json.loads((tmp_path / "out" / "dataset.json").read_text("utf-8"))
    assert {key: manifest[key] for key in ("seed", "limit", "splits", "rows")} == {
        "seed": 7,
        "limit": 5,
        "splits": {"test": 1.0},
        "rows": {"test": 5},
    }
    assert manifest["sources"] == [
        {
            "source": "gsm8k",
            "options": {},
            "weight": None,
            "seen": 61,
            "files": [
                {"name": "gsm8k_odd.jsonl", "sha256": hashlib.sha256(GSM8K_ODD.read_bytes()).hexdigest()}
            ],
            "unused_columns": {},
        }
    ]
    assert set(manifest["versions"]) == {"aworld-train", "numpy", "pyarrow", "python"}
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert set(manifest["outputs"]) == {"test.parquet", "dropped.jsonl"}
    for name, digest in manifest["outputs"].items():
        assert digest == hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest()
    assert manifest["outputs"] == report.outputs


@pytest.mark.parametrize("by", ["directory", "file"])
def test_what_a_reference_dataset_holds_is_left_out(tmp_path: Path, by: str) -> None:
    test = build("gsm8k", tmp_path / "test", files=[GSM8K_ODD], splits={"test": 0.4}, seed=3)
    unseen = tmp_path / "test" if by == "directory" else tmp_path / "test" / "test.parquet"
    train = build("gsm8k", tmp_path / "train", files=[GSM8K_ODD], splits={"train": 1}, against=[unseen])
    held = {row["extra_info"]["expression"] for row in rows(test, "test")}
    trained = {row["extra_info"]["expression"] for row in rows(train, "train")}
    assert not held & trained
    assert held | trained == {
        row["extra_info"]["expression"]
        for row in rows(build("gsm8k", tmp_path / "all", files=[GSM8K_ODD], splits={"all": 1}), "all")
    }
    assert train.against >= len(held)
    assert [item["name"] for item in train.against_files] == ["test.parquet"]


def test_excluding_questions_from_expressions_is_refused_since_nothing_could_match(tmp_path: Path) -> None:
    build("gsm8k", tmp_path / "questions", files=[GSM8K_ODD], tasks="questions")
    with pytest.raises(DatasetError, match=r"extra_info\.expression"):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], against=[tmp_path / "questions"])
    with pytest.raises(DatasetError, match="no parquet file"):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], against=[tmp_path])
    with pytest.raises(DatasetError, match="No such dataset file"):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], against=[tmp_path / "nowhere.parquet"])
    assert not (tmp_path / "out").exists()


def test_an_excluded_expression_that_cannot_be_compared_is_named(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.Table.from_pylist([{"extra_info": {"expression": "half of 48"}}]), foreign)
    with pytest.raises(DatasetError, match="'half of 48' is unusable, words or units"):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], against=[foreign])


def test_questions_are_excluded_whatever_their_case_and_spacing(tmp_path: Path) -> None:
    test = build("gsm8k", tmp_path / "test", files=[GSM8K_ODD], tasks="questions", splits={"test": 1})
    other = tmp_path / "other.jsonl"
    other.write_text(
        json.dumps({"question": "  five AND five,  said twice?", "answer": "#### 10"})
        + "\n"
        + json.dumps({"question": "Something new?", "answer": "#### 1"}),
        encoding="utf-8",
    )
    report = build(
        "gsm8k",
        tmp_path / "out",
        files=[other],
        tasks="questions",
        splits={"train": 1},
        against=[test.out],
    )
    assert (report.against, report.rows) == (1, {"train": 1})


def test_a_split_without_rows_is_an_error_that_gives_the_account(tmp_path: Path) -> None:
    account = r"'val' would be empty: 61 .* seen, 33 dropped \(result disagrees: 3; .*\), 3 merged"
    with pytest.raises(DatasetError, match=account):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], splits={"train": 0.99, "val": 0.01})
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(DatasetError, match="would be empty"):
        build("gsm8k", tmp_path / "out", files=[empty])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("gsmk8", {"files": [GSM8K_ODD]}, "Did you mean 'gsm8k'"),
        ("gsm8k", {}, "--file"),
        ("gsm8k", {"files": [GSM8K_ODD], "tasks": "answers"}, "annotations, questions"),
        ("gsm8k", {"files": [GSM8K_ODD], "limit": 0}, "--limit 0"),
        ("gsm8k", {"files": [GSM8K_ODD], "splits": {"train": 0.9, "val": 0.2}}, "add up"),
    ],
)
def test_options_that_cannot_be_carried_out_are_usage_errors(
    tmp_path: Path, source: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build(source, tmp_path / "out", **options)


def test_an_earlier_dataset_is_replaced_as_a_whole(tmp_path: Path) -> None:
    build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], splits={"train": 0.8, "old": 0.2})
    build("gsm8k", tmp_path / "out", files=[GSM8K_ODD])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "train.parquet",
        "val.parquet",
        "dropped.jsonl",
        "dataset.json",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_directory_and_missing_parents_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    build("gsm8k", tmp_path / "empty", files=[GSM8K_ODD])
    build("gsm8k", tmp_path / "a" / "b", files=[GSM8K_ODD])
    assert check_file(tmp_path / "a" / "b" / "val.parquet").rows == 3


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_the_working_directory_is_not_replaced(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match="is the working directory"):
        build("arithmetic", name, limit=20)


def test_files_of_others_are_never_replaced(tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no dataset build wrote"):
        build("gsm8k", strange, files=[GSM8K_ODD])
    (strange / "dataset.json").write_text('{"outputs": {"thesis.txt": ""}}')
    with pytest.raises(UsageError, match="no dataset build wrote"):
        build("gsm8k", strange, files=[GSM8K_ODD])
    mixed = build("gsm8k", tmp_path / "mixed", files=[GSM8K_ODD]).out
    (mixed / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"also notes\.txt"):
        build("gsm8k", mixed, files=[GSM8K_ODD])
    assert (strange / "thesis.txt").read_text() == (mixed / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match="is a file"):
        build("gsm8k", strange / "thesis.txt", files=[GSM8K_ODD])


def test_a_failed_build_leaves_the_earlier_dataset_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = build("gsm8k", tmp_path / "out", files=[GSM8K_ODD])
    before = {path.name: path.read_bytes() for path in report.out.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aworld_train.dataset.builder.write_manifest", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        build("gsm8k", tmp_path / "out", files=[GSM8K_ODD], seed=9)
    assert {path.name: path.read_bytes() for path in report.out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
