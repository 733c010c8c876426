"""Tasks with several right answers, from the input to the score."""

import csv as csv_format
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from aworld_train.cli.main import app
from aworld_train.dataset import build, check_file
from aworld_train.dataset.schema import SCHEMA
from aworld_train.dataset.statistics import statistics
from aworld_train.errors import DatasetError

QUESTION = "Which team won?"
ANSWERS = ["Denver Broncos", "Broncos", "the Broncos"]
SQUAD = {
    "id": "56be4db0acb8001400a502ec",
    "title": "Super_Bowl_50",
    "context": "The Denver Broncos won.",
    "question": QUESTION,
    "answers": {"text": [*ANSWERS, "Broncos"], "answer_start": [4, 11, 0, 11]},
}


def write_jsonl(path: Path) -> str:
    path.write_text(json.dumps(SQUAD) + "\n")
    return "jsonl"


def write_parquet(path: Path) -> str:
    pq.write_table(pa.Table.from_pylist([SQUAD]), path)
    return "parquet"


def write_csv(path: Path) -> str:
    with path.open("w", newline="") as file:
        csv_format.writer(file).writerows([["question", "answers"], [QUESTION, json.dumps(ANSWERS)]])
    return "csv"


def write_saved(path: Path) -> str:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([SQUAD]).save_to_disk(path)
    return "hf"


def rows_of(path: Path) -> list[dict[str, object]]:
    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_csv, write_saved])
def test_all_right_answers_reach_the_scorer(write: Callable[[Path], str], tmp_path: Path) -> None:
    source = write(tmp_path / "squad")
    report = build(source, tmp_path / "out", files=[tmp_path / "squad"], splits={"test": 1}, scorer="exact")
    (row,) = rows_of(tmp_path / "out/test.parquet")
    assert row["reward_model"] == {"style": "rule", "ground_truth": ANSWERS[0]}
    info = row["extra_info"]
    assert isinstance(info, dict) and info["ground_truths"] == ANSWERS
    assert check_file(tmp_path / "out/test.parquet").several_answers == 1
    assert statistics(tmp_path / "out/test.parquet").several_answers == 1
    unused = [] if source == "csv" else ["title", "context"]
    assert list(report.sources[0]["unused_columns"].values()) == ([unused] if unused else [])

    for prediction, score in ((ANSWERS[2], 1.0), ("Carolina Panthers", 0.0)):
        line = {"id": info["id"], "prediction": f"<answer>{prediction}</answer>"}
        (tmp_path / "predictions.jsonl").write_text(json.dumps(line) + "\n")
        arguments = ["--dataset", str(tmp_path / "out/test.parquet"), "--json"]
        command = ["reward", "score", str(tmp_path / "predictions.jsonl"), *arguments]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        (scored,) = [json.loads(text) for text in result.stdout.splitlines() if '"score"' in text]
        assert scored["score"] == score


def test_all_right_answers_are_shown(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "squad")
    build("jsonl", tmp_path / "out", files=[tmp_path / "squad"], splits={"test": 1})
    for command in ("show", "check", "stats"):
        arguments = ["dataset", command, str(tmp_path / "out/test.parquet")]
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        expected = ANSWERS if command == "show" else ["several right answers"]
        assert result.exit_code == 0 and all(text in result.stdout for text in expected)
        assert command != "show" or result.stdout.count("also right") == 2


def test_a_dataset_with_one_answer_each_has_no_list(tmp_path: Path) -> None:
    rows = [{"query": "q", "answer": ["a", "a", " "]}, {"query": "p", "answer": "b", "answers": ["b"]}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("jsonl", tmp_path / "out", files=[tmp_path / "in.jsonl"], splits={"all": 1})
    assert pq.read_schema(tmp_path / "out/all.parquet").equals(SCHEMA, check_metadata=True)


def test_the_rows_of_a_build_become_the_same_rows_again(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "answer": [f"a{n}", f"b{n}"] if n % 2 else n} for n in range(20)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("jsonl", tmp_path / "first", files=[tmp_path / "in.jsonl"], splits={"all": 1})
    build("parquet", tmp_path / "second", files=[tmp_path / "first/all.parquet"], splits={"all": 1})
    first, second = (
        [
            (row["reward_model"], row["extra_info"]["ground_truths"])
            for row in rows_of(tmp_path / name / "all.parquet")
        ]  # type: ignore[index]
        for name in ("first", "second")
    )
    assert first == second and {answers is None for _, answers in first} == {True, False}


def test_tags_levels_and_system_prompts_of_rows_are_kept_also_when_they_are_built_again(
    tmp_path: Path,
) -> None:
    rows = [
        {
            "query": "q1",
            "answer": "a",
            "tags": ["algebra", "word problem"],
            "level": 2,
            "system": "Be brief.",
        },
        {"query": "q2", "answer": "b", "tags": "algebra"},
        {"query": "q3", "answer": "c"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("jsonl", tmp_path / "first", files=[tmp_path / "in.jsonl"], splits={"all": 1})
    build("parquet", tmp_path / "second", files=[tmp_path / "first/all.parquet"], splits={"all": 1})
    for name in ("first", "second"):
        built = {row["extra_info"]["question"]: row for row in rows_of(tmp_path / name / "all.parquet")}
        tags = {question: row["extra_info"]["tags"] for question, row in built.items()}
        assert tags == {"q1": ["algebra", "word problem"], "q2": ["algebra"], "q3": None}
        assert built["q1"]["extra_info"]["level"] == "2"
        assert [message["role"] for message in built["q1"]["prompt"]] == ["system", "user"]
    assert check_file(tmp_path / "first/all.parquet").rows == 3
    assert "tags" not in {field.name for field in SCHEMA.field("extra_info").type}


def test_the_same_question_with_other_answers_is_no_repeat(tmp_path: Path) -> None:
    rows = [{"query": "q", "answer": answers} for answers in (["a", "b"], ["a", "b"], ["a", "c"], "a")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = build("jsonl", tmp_path / "out", files=[tmp_path / "in.jsonl"], splits={"all": 1})
    assert (report.merged, dict(report.dropped)) == (1, {"same question with another answer": 2})


def test_verl_reads_files_with_and_without_several_answers_together(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", reason="verl is not installed")
    for name, answer in (("one", "a"), ("several", ["a", "b"])):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"query": f"q {name}", "answer": answer}) + "\n")
        build("jsonl", tmp_path / name, files=[tmp_path / f"{name}.jsonl"], splits={"all": 1})
    config = omegaconf.OmegaConf.create({"filter_overlong_prompts": False, "cache_dir": str(tmp_path / "c")})
    for order in (("one", "several"), ("several", "one")):
        files = [str(tmp_path / name / "all.parquet") for name in order]
        dataset = rl_dataset.RLHFDataset(files, tokenizer=None, config=config)
        found = [dataset[number]["extra_info"]["ground_truths"] for number in range(2)]
        assert found == [None if name == "one" else ["a", "b"] for name in order]


def row(ground_truths: list[str | None] | None, answer: str = "a") -> dict[str, object]:
    return {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "q"}],
        "reward_model": {"ground_truth": answer},
        "extra_info": {"index": 0, "ground_truths": ground_truths},
    }


@pytest.mark.parametrize(
    ("ground_truths", "message"),
    [
        (["a", " "], "row 0 has an empty text in extra_info.ground_truths"),
        (["a", None], "row 0 has an empty text in extra_info.ground_truths"),
        (["b", "c"], "row 0 has the answer 'a', which is not in its extra_info.ground_truths"),
    ],
)
def test_a_list_that_scoring_would_read_wrongly_is_a_fault(
    ground_truths: list[str | None], message: str, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist([row(ground_truths)]), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=message):
        check_file(tmp_path / "x.parquet")


@pytest.mark.parametrize("ground_truths", [None, [], ["b", "a"]])
def test_a_list_may_be_missing_or_in_any_order(
    ground_truths: list[str | None] | None, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist([row(ground_truths)]), tmp_path / "x.parquet")
    assert check_file(tmp_path / "x.parquet").several_answers == (ground_truths == ["b", "a"])


def test_right_answers_that_are_no_list_of_texts_are_a_fault(tmp_path: Path) -> None:
    odd = row(None) | {"extra_info": {"index": 0, "ground_truths": "a"}}
    pq.write_table(pa.Table.from_pylist([odd]), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=r"'extra_info\.ground_truths' is string, not a list of texts"):
        check_file(tmp_path / "x.parquet")
