"""Questions with choices: how they are put, and which choice is the answer."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build
from aworld_train.dataset.sources.csv import csv
from aworld_train.dataset.sources.jsonl import jsonl
from aworld_train.dataset.sources.options import SourceOptions, read_choices_prompt
from aworld_train.dataset.sources.parquet import parquet
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError
from tests.task_tables import one_by_one

TEXTS = ["Rome", "Paris", "Oslo"]
PUT = "Capital of France?\nA. Rome\nB. Paris\nC. Oslo"
ASKED = f"{PUT}\n\nAnswer with A, B or C."


def read(row: dict[str, object], tmp_path: Path, **options: object) -> Task | Dropped:
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "Capital of France?", **row}) + "\n")
    (item,) = one_by_one(jsonl(SourceOptions(files=(str(tmp_path / "in.jsonl"),), **options)))  # type: ignore[arg-type]
    return item


@pytest.mark.parametrize(
    "row",
    [
        {"choices": TEXTS, "answer": 1},
        {"choices": TEXTS, "answer": "B"},
        {"choices": TEXTS, "answer": "(b)"},
        {"choices": TEXTS, "answer": "Paris"},
        {"choices": TEXTS, "answer": ["paris "]},
        {"choices": TEXTS, "label": "1"},
        {"options": {"A": "Rome", "B": "Paris", "C": "Oslo", "D": None}, "answer": "B"},
        {"options": ["A) Rome", "B) Paris", "C) Oslo"], "answer": "B"},
        {"choices": {"text": TEXTS, "label": ["A", "B", "C"]}, "answerKey": "B"},
        {
            "choices": [{"label": label, "text": text} for label, text in zip("ABC", TEXTS, strict=True)],
            "answer": "B",
        },
        {"choices": json.dumps(TEXTS), "answer": "B"},
        {"A": "Rome", "B": "Paris", "C": "Oslo", "answer": "B"},
        {"opa": "Rome", "opb": "Paris", "opc": "Oslo", "opd": None, "answer": 1},
        {"option_a": "Rome", "Option B": "Paris", "optionC": "Oslo", "answer": "Paris"},
    ],
)
def test_choices_go_into_the_question_and_the_answer_is_a_label(
    row: dict[str, object], tmp_path: Path
) -> None:
    task = read(row, tmp_path)
    assert isinstance(task, Task), task
    assert (task.message, task.subject, task.answer, task.scorer) == (ASKED, PUT, "B", "exact")


@pytest.mark.parametrize(
    ("labels", "answer", "right"),
    [(["1", "2", "3"], "2", "2"), (["1", "2", "3"], 2, "2"), (["0", "1", "2"], 1, "1")],
)
def test_labels_of_the_input_go_before_positions(
    labels: list[str], answer: object, right: str, tmp_path: Path
) -> None:
    task = read({"choices": {"text": TEXTS, "label": labels}, "answer": answer}, tmp_path)
    assert isinstance(task, Task) and task.answer == right
    assert task.message.endswith(f"Answer with {labels[0]}, {labels[1]} or {labels[2]}.")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"choices": TEXTS, "answer": None}, "no answer"),
        ({"choices": TEXTS, "answer": -1}, "answer is hidden"),
        ({"choices": TEXTS, "answer": "Berlin"}, "answer is none of the choices"),
        ({"choices": TEXTS, "answer": 7}, "answer is none of the choices"),
        ({"choices": ["1", "2", "3"], "answer": "1"}, "answer could be more than one of the choices"),
        ({"choices": [1, 2, 3], "answer": 1}, "answer could be more than one of the choices"),
        ({"choices": ["B", "A", "C"], "answer": "A"}, "answer could be more than one of the choices"),
        ({"choices": ["same", "same"], "answer": "same"}, "answer could be more than one of the choices"),
        ({"choices": TEXTS, "answer": ["A", "B"]}, "more than one of the choices is right"),
        ({"choices": ["one"], "answer": 0}, "fewer than two choices"),
        ({"choices": ["one", ""], "answer": 0}, "a choice is empty"),
        ({"choices": [["one"], ["two"]], "answer": 0}, "choices are not a list of texts"),
        ({"choices": "one or two", "answer": 0}, "choices are not a list of texts"),
        ({"choices": {"text": TEXTS, "label": ["A", "a", "B"]}, "answer": "A"}, "two choices have one label"),
    ],
)
def test_choices_that_leave_a_doubt_are_dropped(row: dict[str, object], reason: str, tmp_path: Path) -> None:
    item = read(row, tmp_path)
    assert isinstance(item, Dropped) and item.reason == reason


def test_a_number_among_choices_that_are_texts_is_a_position(tmp_path: Path) -> None:
    task = read({"choices": ["1", "2", "3"], "answer": 1}, tmp_path)
    assert isinstance(task, Task) and task.answer == "B"


def test_positions_that_count_from_one_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"in\.jsonl, line 1: the answer 3 is not a position among 3 choices"
    ):
        read({"choices": TEXTS, "answer": 3}, tmp_path)


@pytest.mark.parametrize("choices", [None, [], {}, ""])
def test_a_record_without_choices_is_a_plain_question(choices: object, tmp_path: Path) -> None:
    task = read({"choices": choices, "answer": "Paris"}, tmp_path)
    assert isinstance(task, Task) and (task.message, task.answer) == ("Capital of France?", "Paris")


@pytest.mark.parametrize(
    ("template", "message", "answer"),
    [
        (
            "Choose.\n({label}) {choice}\nQ: {question} {labels}?",
            "Choose.\n(A) Rome\n(B) Paris\n(C) Oslo\nQ: Capital of France? A, B or C?",
            "B",
        ),
        ("{question}\n- {choice}", "Capital of France?\n- Rome\n- Paris\n- Oslo", "Paris"),
        ("{question}", "Capital of France?", "Paris"),
    ],
)
def test_a_template_says_how_choices_are_put_and_what_the_answer_is(
    template: str, message: str, answer: str, tmp_path: Path
) -> None:
    task = read({"choices": TEXTS, "answer": 1}, tmp_path, choices_prompt=template)
    assert isinstance(task, Task) and (task.message, task.answer) == (message, answer)


def test_braces_in_a_question_are_no_places_of_the_template(tmp_path: Path) -> None:
    row = {"question": "What is {choice} and {label}?", "choices": ["{question}", "{labels}"], "answer": 0}
    task = read(row, tmp_path)
    assert isinstance(task, Task)
    assert task.message.startswith("What is {choice} and {label}?\nA. {question}\nB. {labels}\n\n")


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{choice}", "has {question} once"),
        ("{question} {question}", "has {question} once"),
        ("{question}\n{choice}\n{choice}", "has {choice} in one line"),
        ("{question}\n{label}\n{choice}", "has {label} in the line of {choice}"),
        ("{question} {label}) {choice}", "has {question} outside the line of {choice}"),
        ("{question}\n{choice}\n{labels}", "has {label} beside {choice}"),
    ],
)
def test_a_template_that_cannot_put_a_question_is_refused(
    template: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "choices.txt").write_text(template)
    with pytest.raises(UsageError) as refused:
        read_choices_prompt(tmp_path / "choices.txt")
    assert problem in refused.value.message


def test_the_same_question_with_other_choices_is_another_task(tmp_path: Path) -> None:
    rows = [
        {"question": "Which is right?", "choices": choices, "answer": 0}
        for choices in (["a", "b"], ["c", "d"], ["a", "b"])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    report = build("parquet", tmp_path / "out", files=[tmp_path / "in.parquet"], splits={"all": 1})
    assert (report.rows, report.merged) == ({"all": 2}, 1)


def test_choices_of_csv_and_parquet_are_put_alike(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(
        "question,A,B,C,answer\nCapital of France?,Rome,Paris,Oslo,B\nTwo?,yes,no,,A\n"
    )
    first, second = csv(SourceOptions(files=(str(tmp_path / "in.csv"),)))
    assert isinstance(first, Task) and (first.message, first.answer) == (ASKED, "B")
    assert isinstance(second, Task) and second.message == "Two?\nA. yes\nB. no\n\nAnswer with A or B."
    row = {
        "question": "Capital of France?",
        "choices": {"text": TEXTS, "label": list("ABC")},
        "answerKey": "B",
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "in.parquet")
    (third,) = parquet(SourceOptions(files=(str(tmp_path / "in.parquet"),)))
    assert isinstance(third, Task) and (third.message, third.answer) == (ASKED, "B")


def test_a_column_that_map_makes_the_choices_is_not_taken_for_answers(tmp_path: Path) -> None:
    task = read({"answers": TEXTS, "label": 1}, tmp_path, columns={"choices": "answers"})
    assert isinstance(task, Task) and (task.message, task.answer, task.ground_truths) == (ASKED, "B", ())
