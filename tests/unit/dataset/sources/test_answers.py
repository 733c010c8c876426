"""The right answers of a record, in the forms that public datasets have them in."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from aworld_train.dataset.sources.answers import right_answers
from aworld_train.dataset.sources.jsonl import jsonl
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.user_source import load_source
from aworld_train.dataset.sources.values import UnusableRecord
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import UsageError
from tests.task_tables import one_by_one


@pytest.mark.parametrize(
    ("answer", "others", "texts"),
    [
        ("a", None, ["a"]),
        (["a", " b ", "a"], None, ["a", "b"]),
        ([1, 2.5, True], None, ["1", "2.5", "true"]),
        ({"text": ["a", "b"], "answer_start": [1, 5]}, None, ["a", "b"]),
        ([{"text": "a", "answer_start": 1}, {"text": "b", "answer_start": 5}], None, ["a", "b"]),
        ({"value": "a", "aliases": ["a", "b"], "normalized_aliases": ["c"]}, None, ["a", "b"]),
        ({"target": ["a", "b"]}, None, ["a", "b"]),
        ({"spans": ["a"], "types": ["span"]}, None, ["a"]),
        (None, ["a", "b"], ["a", "b"]),
        ("a", ["b", "a"], ["a", "b"]),
        ("a", '["b", 1.50]', ["a", "b", "1.50"]),
        (None, "a plain one", ["a plain one"]),
        ("?", ["b", None, "-"], ["b"]),
    ],
)
def test_right_answers_are_taken_once_and_in_order(answer: object, others: object, texts: list[str]) -> None:
    assert right_answers(answer, others) == (texts[0], tuple(texts) if len(texts) > 1 else ())


@pytest.mark.parametrize(
    ("answer", "others", "reason"),
    [
        ([], None, "no answer"),
        ({"text": [], "answer_start": []}, None, "no answer"),
        (["?", None], None, "answer is hidden"),
        ([["a"]], None, "answer is not text or a number"),
        ({"a": "b"}, None, "answer is not text or a number"),
        (["a", float("nan")], None, "a number is NaN or infinite"),
        (None, "[a", "ground_truths is not a list"),
    ],
)
def test_without_a_right_answer_there_is_a_reason(answer: object, others: object, reason: str) -> None:
    with pytest.raises(UnusableRecord, match=reason):
        right_answers(answer, others)


def test_a_list_is_one_answer_for_a_scorer_that_reads_json() -> None:
    assert right_answers(["a", 1], structured=True) == ('["a", 1]', ())
    assert right_answers(["a", 1], ["b"], structured=True) == ('["a", 1]', ('["a", 1]', "b"))


def read(row: Mapping[str, object], tmp_path: Path, **columns: str) -> Task | Dropped:
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    options = SourceOptions(files=(str(tmp_path / "in.jsonl"),), columns=columns)
    (item,) = one_by_one(jsonl(options))
    return item


@pytest.mark.parametrize("name", ["ground_truths", "answers", "golden_answers", "Gold answers"])
def test_a_column_of_all_answers_is_known_by_its_name(name: str, tmp_path: Path) -> None:
    item = read({"question": "q", name: ["a", "b"]}, tmp_path)
    assert isinstance(item, Task) and item.ground_truths == ("a", "b")
    item = read({"question": "q", "answer": "c", name: ["a", "b"]}, tmp_path)
    assert isinstance(item, Task) and item.ground_truths == ("c", "a", "b")


def test_another_name_of_the_answer_beside_a_column_of_all_is_an_error(tmp_path: Path) -> None:
    row = {"question": "q", "solution": "long", "answers": ["a", "b"]}
    with pytest.raises(UsageError, match="'solution' and 'answers' could each be the answer"):
        read(row, tmp_path)


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ({"answer": "solution"}, ["long"]),
        ({"answer": "answers"}, ["a", "b"]),
        ({"ground_truths": "answers"}, ["a", "b"]),
        ({"answer": "solution", "ground_truths": "answers"}, ["long", "a", "b"]),
    ],
)
def test_map_says_which_answers_count(columns: dict[str, str], texts: list[str], tmp_path: Path) -> None:
    item = read({"question": "q", "solution": "long", "answers": ["a", "b"]}, tmp_path, **columns)
    assert isinstance(item, Task) and item.answer == texts[0]
    assert list(item.ground_truths) == (texts if len(texts) > 1 else [])


def test_a_task_of_a_users_source_has_its_answer_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(
        "from aworld_train.dataset.tasks import Task, TaskKind\n"
        "def tasks():\n"
        "    for several in ((), ('a',), ('b', 'a'), ('',)):\n"
        "        yield Task(data_source='x', ability='x', kind=TaskKind.question, subject='q', message='q',\n"
        "                   answer='a', scorer='exact', answer_schema='answer', ground_truths=several)\n"
        "    yield {'query': 'q', 'answer': ['a', 'b'], 'remark': 1}\n"
    )
    options = SourceOptions()
    items = list(load_source(f"{tmp_path / 'own.py'}:tasks")(options))
    assert [item.ground_truths for item in items if isinstance(item, Task)] == [
        (),
        (),
        ("a", "b"),
        (),
        ("a", "b"),
    ]
    assert options.unused_columns == {"own.py": ["remark"]}
