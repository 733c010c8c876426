"""The evaluated tasks that a run's training files have are found, and what could not be compared is said."""

import hashlib
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from aworld_train.dataset import build
from aworld_train.errors import DatasetError
from aworld_train.evaluation.contamination import Contamination, find_contamination
from tests.run_folders import make_run

QUESTIONS = [
    "A train leaves the station at noon and travels 60 miles in 2 hours. How fast does the train go on average?",
    "Which river flows through the capital of the country that won the football world cup in the year 1998?",
    "Anna picks 12 apples from each of the 4 trees in the garden and gives half of all the apples to Ben.",
    "Who wrote the opera that was played at the opening of the new house in the harbour of Sydney?",
]


def dataset(folder: Path, questions: Sequence[str]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = folder / "lines.jsonl"
    lines.write_text("".join(json.dumps({"query": each, "answer": "42"}) + "\n" for each in questions))
    build("jsonl", folder / "data", files=[lines], splits={"all": 1})
    return folder / "data/all.parquet"


def run_of(folder: Path, files: Sequence[Path | str], **hashes: str) -> Path:
    """A run that was trained on these files; its checkpoint."""
    (folder / "runs").mkdir(exist_ok=True)
    names = [str(file) for file in files]
    known = {
        name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names if Path(name).is_file()
    }
    run = make_run(
        folder / "runs", f"run-{len(list((folder / 'runs').iterdir()))}", data_sha256={**known, **hashes}
    )
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["dataset"] = {"train": names[0] if len(names) == 1 else names, "val": "elsewhere.parquet"}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    checkpoint = run / "checkpoints/global_step_2/actor/huggingface"
    checkpoint.mkdir(parents=True)
    return checkpoint


def found(evaluated: Sequence[Path], checkpoint: Path, **options: Any) -> Contamination:
    result = find_contamination(evaluated, checkpoint, **options)
    assert result is not None
    json.dumps(asdict(result))
    return result


def test_each_kind_of_match_is_counted_once_for_its_task(tmp_path: Path) -> None:
    evaluated = dataset(tmp_path / "eval", QUESTIONS)
    order = [row["extra_info"]["question"] for row in pq.read_table(evaluated).to_pylist()]
    train = dataset(
        tmp_path / "train",
        [
            QUESTIONS[0].upper(),
            QUESTIONS[0].replace("noon", "night"),
            f"Here is a riddle that I heard yesterday. {QUESTIONS[1]} Give a hint first, then the answer.",
            QUESTIONS[2].replace("12", "15").replace("4", "9"),
            "What is the tallest building that stands in the harbour of the town in which the fair was held?",
        ],
    )
    result = found([evaluated], run_of(tmp_path, [train]))
    assert (result.n, result.exact, result.near, result.figure_variants) == (4, 1, 1, 1)
    assert result.files == (str(train),)
    assert (result.missing, result.changed, result.rows, result.is_complete) == ((), (), 5, True)
    kinds = {example.kind: (example.index, example.question) for example in result.examples}
    assert kinds["exact"] == (order.index(QUESTIONS[0]), QUESTIONS[0])
    assert kinds["contained"] == (order.index(QUESTIONS[1]), QUESTIONS[1])
    assert kinds["figure variant"] == (order.index(QUESTIONS[2]), QUESTIONS[2])


@pytest.mark.parametrize(
    "place", ["", "checkpoints/global_step_2", "checkpoints/global_step_2/actor/huggingface"]
)
def test_a_runs_folder_and_any_checkpoint_in_it_are_known(tmp_path: Path, place: str) -> None:
    train = dataset(tmp_path / "train", QUESTIONS[:2])
    run = run_of(tmp_path, [train]).parents[3]
    assert found([train], run / place).exact == 2


def test_a_model_of_no_run_and_a_run_without_training_files_have_no_result(tmp_path: Path) -> None:
    evaluated = dataset(tmp_path / "eval", QUESTIONS)
    (tmp_path / "model").mkdir()
    assert find_contamination([evaluated], tmp_path / "model") is None
    (tmp_path / "runs").mkdir()
    assert find_contamination([evaluated], make_run(tmp_path / "runs", "bare")) is None


def test_a_file_that_changed_and_one_that_is_gone_are_said(tmp_path: Path) -> None:
    evaluated = dataset(tmp_path / "eval", QUESTIONS)
    same = dataset(tmp_path / "same", QUESTIONS[:1])
    other = dataset(tmp_path / "other", QUESTIONS[1:3])
    gone, broken = tmp_path / "gone.parquet", tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    hashes = {str(other): "0" * 64, str(gone): "1" * 64}
    unset = "${oc.env:NO_SUCH_VARIABLE_HERE}/train.parquet"
    result = found([evaluated], run_of(tmp_path, [same, other, gone, broken, unset], **hashes))
    assert result.exact == 3
    assert result.files == (str(same), str(other))
    assert result.changed == (str(other),)
    assert [each.partition(": ")[0] for each in result.missing] == [str(gone), str(broken), unset]


def test_paths_relative_to_where_the_run_was_made_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = dataset(tmp_path / "train", QUESTIONS)
    sha = hashlib.sha256(train.read_bytes()).hexdigest()
    monkeypatch.setenv("TRAIN_HERE", "train/data")
    checkpoint = run_of(
        tmp_path,
        ["./train/data/all.parquet", "${oc.env:TRAIN_HERE}/all.parquet"],
        **{"train/data/all.parquet": sha},
    )
    result = found([train], checkpoint)
    assert (result.exact, result.changed, result.missing) == (4, (), ())
    assert result.files == ("./train/data/all.parquet", "${oc.env:TRAIN_HERE}/all.parquet")


def test_calculations_match_by_what_they_compute(tmp_path: Path) -> None:
    build("arithmetic", tmp_path / "data", limit=40, splits={"train": 0.5, "test": 0.5})
    train, test = tmp_path / "data/train.parquet", tmp_path / "data/test.parquet"
    checkpoint = run_of(tmp_path, [train])
    assert (found([test], checkpoint).exact, found([train], checkpoint).exact) == (0, 20)
    both = found([train, test], checkpoint)
    assert (both.n, both.exact, both.near) == (40, 20, 0)


def test_evaluated_tasks_with_the_same_text_all_count(tmp_path: Path) -> None:
    train = dataset(tmp_path / "train", QUESTIONS[:1])
    result = found([train, train], run_of(tmp_path, [train]))
    assert (result.n, result.exact, len(result.examples)) == (2, 2, 1)


def test_no_more_time_is_taken_than_was_given(tmp_path: Path) -> None:
    train = dataset(tmp_path / "train", QUESTIONS)
    result = found([train], run_of(tmp_path, [train]), max_seconds=0.0)
    assert (result.rows, result.exact, result.is_complete) == (0, 0, False)


def test_rows_of_another_program_are_compared_by_their_last_message(tmp_path: Path) -> None:
    evaluated = dataset(tmp_path / "eval", QUESTIONS)
    rows = [
        {"prompt": [{"role": "user", "content": text}], "extra_info": {"index": 0}} for text in QUESTIONS[:2]
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    assert found([evaluated], run_of(tmp_path, [tmp_path / "train.parquet"])).exact == 2


def test_evaluated_tasks_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    train = dataset(tmp_path / "train", QUESTIONS)
    with pytest.raises(DatasetError):
        find_contamination([tmp_path / "none.parquet"], run_of(tmp_path, [train]))


def test_memory_does_not_grow_with_the_training_data(tmp_path: Path) -> None:
    evaluated = dataset(tmp_path / "eval", QUESTIONS)

    def peak(rows: int) -> int:
        file = tmp_path / f"{rows}.parquet"
        text = "Training question {} is about the many things that one may find in house {} of the street."
        prompts = [[{"role": "user", "content": text.format(n, n)}] for n in range(rows)]
        pq.write_table(pa.table({"prompt": prompts}), file, row_group_size=200)
        del prompts
        checkpoint = run_of(tmp_path, [file])
        tracemalloc.start()
        result = found([evaluated], checkpoint)
        assert (result.rows, result.exact) == (rows, 0)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(200)
    # Both are more than one batch of rows.
    assert peak(12_000) < peak(6_000) + (1 << 20)
