"""Features of Hugging Face datasets, in files that the library wrote: labels by name, unused columns named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aworld_train.cli.main import app
from aworld_train.dataset.sources.features import label_decoder
from aworld_train.dataset.sources.hf import hf
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.parquet import parquet
from aworld_train.dataset.tasks import Dropped, Task

datasets = pytest.importorskip("datasets")


def save(dataset: Any, path: Path) -> None:
    dataset.save_to_disk(path)


def to_parquet(dataset: Any, path: Path) -> None:
    dataset.to_parquet(path)


def read(dataset: Any, write: Callable[[Any, Path], None], path: Path) -> list[Task | Dropped]:
    write(dataset, path)
    return list((hf if write is save else parquet)(SourceOptions(files=(str(path),))))


both = pytest.mark.parametrize("write", [save, to_parquet])


@both
def test_a_class_label_is_its_name(write: Callable[[Any, Path], None], tmp_path: Path) -> None:
    label = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features({"question": datasets.Value("string"), "label": label})
    rows = {"question": ["a", "b", "c", "d"], "label": [1, 0, -1, None]}
    items = read(datasets.Dataset.from_dict(rows, features=features), write, tmp_path / "mine")
    assert [item.answer if isinstance(item, Task) else item.reason for item in items] == [
        "positive",
        "negative",
        "no answer",
        "no answer",
    ]


@both
def test_labels_inside_lists_and_mappings_are_names(
    write: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    label = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "answers": datasets.Sequence({"text": label, "answer_start": datasets.Value("int32")}),
            "answer": datasets.List(label),
        }
    )
    rows = {
        "question": ["q"],
        "answers": [{"text": [1, 0], "answer_start": [3, 4]}],
        "answer": [[0]],
    }
    (task,) = read(datasets.Dataset.from_dict(rows, features=features), write, tmp_path / "mine")
    assert isinstance(task, Task) and task.ground_truths == ("no", "yes")


@both
def test_mmlus_choices_and_label_become_a_question_and_a_letter(
    write: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "subject": datasets.Value("string"),
            "choices": datasets.List(datasets.Value("string")),
            "answer": datasets.ClassLabel(names=list("ABCD")),
        }
    )
    row = {"question": "2 + 2?", "subject": "algebra", "choices": ["3", "4", "5", "6"], "answer": 1}
    (task,) = read(datasets.Dataset.from_list([row], features=features), write, tmp_path / "mine")
    assert isinstance(task, Task) and task.answer == "B"
    assert task.message == "2 + 2?\nA. 3\nB. 4\nC. 5\nD. 6\n\nAnswer with A, B, C or D."


@pytest.mark.parametrize("source", ["hf", "parquet"])
def test_columns_that_are_not_used_are_named_in_output_and_manifest(source: str, tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "image": datasets.Image(),
            "answer": datasets.Value("timestamp[us, tz=UTC]"),
            "remark": datasets.Value("string"),
        }
    )
    rows = {
        "question": ["When?", "And now?"],
        "image": [{"bytes": b"x", "path": None}, None],
        "answer": [1_700_000_000_000_000] * 2,
        "remark": ["", ""],
    }
    dataset = datasets.Dataset.from_dict(rows, features=features)
    paths = [tmp_path / "mine"] if source == "hf" else [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        (save if source == "hf" else to_parquet)(dataset, path)
    files = [argument for path in paths for argument in ("--file", str(path))]
    command = ["dataset", "build", source, *files, "--out", str(tmp_path / "out"), "--split", "all=1"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    names = ["mine"] if source == "hf" else ["a.parquet", "b.parquet"]
    manifest = json.loads((tmp_path / "out/dataset.json").read_text())
    unused = ["image", "remark"]
    assert manifest["sources"][0]["unused_columns"] == dict.fromkeys(names, unused)
    title = names[0] if source == "hf" else "a.parquet and 1 more files"
    output = " ".join((result.stdout + result.stderr).split())
    assert output.replace(" ", "").count(f"Not used of {title}: image, remark".replace(" ", "")) == 1


@pytest.mark.parametrize(
    "feature",
    [
        None,
        [],
        {"dtype": "string", "_type": "Value"},
        {"_type": "Image"},
        {"names": None, "_type": "ClassLabel"},
        {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
        {"a": {"dtype": "string", "_type": "Value"}},
        "odd",
    ],
)
def test_a_column_without_labels_needs_no_decoding(feature: object) -> None:
    assert label_decoder(feature) is None


def test_old_descriptions_of_lists_are_known() -> None:
    decode = label_decoder([{"names": ["x", "y"], "_type": "ClassLabel"}])
    assert decode is not None and decode([1, 0, 5, None]) == ["y", "x", None, None]
