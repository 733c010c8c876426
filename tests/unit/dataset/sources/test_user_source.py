"""User-defined sources: what they may yield, and how their errors are reported."""

import sys
from pathlib import Path

import pytest

from aworld_train.dataset.sources import find_source
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError


def run(code: str, tmp_path: Path, **options: object) -> list[Task | Dropped]:
    path = tmp_path / "mine.py"
    path.write_text(code)
    return list(find_source(f"{path}:tasks")(SourceOptions(**options)))  # type: ignore[arg-type]


def test_mappings_are_read_as_json_lines_are(tmp_path: Path) -> None:
    items = [{"id": 3, "question": " q ", "answer": 1.5, "scorer": "f1"}, {"question": "p"}]
    task, dropped = run(f"def tasks():\n    yield from {items}\n", tmp_path)
    assert isinstance(task, Task)
    assert (task.id, task.message, task.answer, task.scorer) == ("3", "q", "1.5", "f1")
    assert (task.data_source, task.file, task.line) == ("mine", "mine.py", 1)
    assert isinstance(dropped, Dropped) and (dropped.reason, dropped.line) == ("no answer", 2)


def test_it_may_take_the_options(tmp_path: Path) -> None:
    code = "def tasks(options):\n    return [{'query': name, 'answer': str(options.seed)} for name in options.files]\n"
    (task,) = run(code, tmp_path, files=("one",), seed=7)
    assert isinstance(task, Task) and (task.message, task.answer) == ("one", "7")


TASK = """
from __future__ import annotations
from dataclasses import dataclass
from aworld_train.dataset.tasks import Dropped, Task, TaskKind

@dataclass
class Settings:
    answers: tuple[str, ...] = ("a", "\\ud800", " ", "?")

def tasks():
    for answer in Settings().answers:
        yield Task(data_source="d", ability="x", kind=TaskKind.question, subject="q", message="q", answer=answer,
                   scorer="exact", answer_schema="answer")
    yield Dropped("f", 1, "text", "reason")
"""


def test_tasks_are_passed_on_and_those_that_cannot_be_trained_on_are_dropped(tmp_path: Path) -> None:
    items = run(TASK, tmp_path)
    assert isinstance(items[0], Task)
    assert [item.reason for item in items[1:] if isinstance(item, Dropped)] == [
        "not valid Unicode",
        "no answer",
        "answer is hidden",
        "reason",
    ]


def test_half_a_surrogate_pair_in_a_message_is_dropped(tmp_path: Path) -> None:
    code = "def tasks():\n    yield {'query': [{'role': 'user', 'content': '\\ud800'}], 'answer': 'a'}\n"
    (dropped,) = run(code, tmp_path)
    assert isinstance(dropped, Dropped) and dropped.reason == "not valid Unicode"
    dropped.text.encode()


def test_an_error_in_it_says_where(tmp_path: Path) -> None:
    code = "def tasks():\n    yield {'query': 'q', 'answer': 'a'}\n    {}['missing']\n"
    with pytest.raises(
        DatasetError, match=r"failed after 1 items, in .*mine\.py, line 3: KeyError: 'missing'"
    ):
        run(code, tmp_path)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def tasks():\n    yield 5\n", "its item 1 is of type int"),
        ("def tasks():\n    return None\n", "returned NoneType, not tasks"),
        (
            "def tasks():\n    yield {'query': 'q', 'answer': 'a', 'scorer': 'exakt'}\n",
            "mine.py, line 1: unknown scorer",
        ),
        (
            "def tasks():\n    yield {}\n    raise SystemExit(3)\n",
            "failed after 1 items.*line 3: SystemExit: 3",
        ),
    ],
)
def test_what_it_yields_must_be_tasks(code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        run(code, tmp_path)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def task():\n    yield\n", "names 'tasks', which is not in .*Did you mean 'task'"),
        ("tasks = 5\n", "of type int, not a function"),
        ("def tasks(a, b):\n    yield\n", r"takes \(a, b\): write it with one parameter"),
        ("import a_module_that_is_not_there\n", "Install it, or put its directory on PYTHONPATH"),
        ("def tasks(:\n", "SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_a_source_is_an_error(code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        run(code, tmp_path)


def test_a_module_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tasks_module.py").write_text("def tasks():\n    yield {'query': 'q', 'answer': 'a'}\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        (task,) = find_source("own_tasks_module:tasks")(SourceOptions())
    finally:
        sys.modules.pop("own_tasks_module", None)
    assert isinstance(task, Task) and task.data_source == "own_tasks_module"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_source(f"{tmp_path / 'nothing.py'}:tasks")


def test_what_it_dropped_is_listed_as_text(tmp_path: Path) -> None:
    code = "from aworld_train.dataset.tasks import Dropped\ndef tasks():\n    yield Dropped('', 0, None, 'no text')\n"
    assert run(code, tmp_path) == [Dropped("mine.py", 1, "null", "no text")]


def test_fields_that_no_item_has_are_an_error(tmp_path: Path) -> None:
    code = "def tasks():\n    yield {'foo': 1, 'answer': 2}\n"
    with pytest.raises(
        UsageError, match=r"tasks' has no column that is known to be the query.*'foo', 'answer'"
    ):
        run(code, tmp_path)
    with pytest.raises(UsageError, match=r"--map level=hard: .*has no column 'hard'"):
        run(code, tmp_path, columns={"query": "foo", "level": "hard"})
