"""GSM8K's records: every annotation and every record is yielded, as a task or as dropped with a reason."""

import gzip
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources.gsm8k import (
    agrees,
    annotation_tasks,
    annotations,
    gsm8k,
    question_tasks,
    read_annotation,
)
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError
from tests.locations import GSM8K_ODD


def test_each_usable_annotation_of_the_odd_rows_becomes_its_task() -> None:
    tasks = [item for item in annotation_tasks(GSM8K_ODD) if isinstance(item, Task)]
    assert [(task.line, task.subject, task.answer) for task in tasks] == [
        (1, "48/2", "24"),
        (1, "48+24", "72"),
        (2, "15*0.5", "7.5"),
        (2, "7.5+2.25", "9.75"),
        (3, "(50/100)*48", "24"),
        (3, "24/(50/100)", "48"),
        (4, "1080*2", "2160"),
        (5, "3/4", "0.75"),
        (5, "1-1/4", "0.75"),
        (6, "560/10", "56"),
        (9, "10/3", "3.333333"),
        (9, "20/3", "6.666667"),
        (9, "13/2", "6.5"),
        (13, "8+1", "9"),
        (15, "-18/(-2)", "9"),
        (15, "71-3", "68"),
        (15, "9*(-2)", "-18"),
        (16, "6*7", "42"),
        (16, "42/6", "7"),
        (16, "3*4", "12"),
        (16, "12-5", "7"),
        (21, "48/2", "24"),
        (21, "48/2", "24"),
        (23, "2+2", "4"),
        (24, "2*3", "6"),
        (25, "2*4", "8"),
        (26, "2*4", "8"),
        (27, "2*5", "10"),
    ]
    assert tasks[0].message == "What is 48/2?"
    assert {task.file for task in tasks} == {"gsm8k_odd.jsonl"}


def test_each_unusable_annotation_of_the_odd_rows_has_its_reason() -> None:
    dropped = [item for item in annotation_tasks(GSM8K_ODD) if isinstance(item, Dropped)]
    assert [(item.line, item.text[:24], item.reason) for item in dropped] == [
        (6, "7//2=3", "floor division that leaves a remainder"),
        (7, "12+5", "no equals sign"),
        (7, "=17", "empty expression"),
        (7, "12+5=", "no stated result"),
        (7, "", "no equals sign"),
        (8, "5 feet*2=10 feet", "words or units in the expression"),
        (8, "5*2=10 feet", "stated result is not a number"),
        (10, "6*7=43", "result disagrees"),
        (10, "5/3=1", "result disagrees"),
        (11, "12=12", "nothing to compute"),
        (11, "+10=10", "nothing to compute"),
        (11, "(-3)=-3", "nothing to compute"),
        (12, "5+5=10=10", "more than one equals sign"),
        (13, "3+4=7 birds here.", "annotation without its other bracket"),
        (13, "Again 3+5=8", "annotation without its other bracket"),
        (13, "9+1=10 ", "annotation without its other bracket"),
        (14, "5/0=0", "division by zero"),
        (17, "1 1/2*2=3", "malformed expression"),
        (17, "1,08*2=216", "misplaced comma"),
        (18, "7%3=1", "percent sign between two numbers"),
        (19, "90000000*90000000=810000", "result too large"),
        (19, "1/3000000=5", "result disagrees"),
        (20, "1+1+1+1+1+1+1+1+1+1+1+1+", "expression too long"),
        (20, "((((((((((((((((((((((((", "parentheses too deep"),
        (20, "2+*3=5", "malformed expression"),
        (20, "(2+3=5", "malformed expression"),
        (22, "Think of it, and it is t", "no annotation in the row"),
        (28, '{"question": "A line tha', "not JSON"),
        (29, "", "blank line"),
        (30, '{"question": "A row with', "no question and answer in the row"),
        (31, '["A row that is a list",', "no question and answer in the row"),
        (32, '{"question": "A row whos', "question or answer is not text"),
        (33, '{"question": "A row with', "not valid Unicode"),
    ]


def test_every_row_is_a_question_with_its_final_answer_or_has_a_reason() -> None:
    items = list(question_tasks(GSM8K_ODD))
    assert [item.line for item in items] == list(range(1, 34))
    answers = {item.line: item.answer for item in items if isinstance(item, Task)}
    assert answers[1] == "72"
    assert answers[2] == "9.75"
    assert answers[4] == "2160"
    assert answers[26] == "8"
    reasons = {item.line: item.reason for item in items if isinstance(item, Dropped)}
    assert reasons == {
        19: "result too large",
        23: "no final answer",
        24: "final answer is not a number",
        28: "not JSON",
        29: "blank line",
        30: "no question and answer in the row",
        31: "no question and answer in the row",
        32: "question or answer is not text",
        33: "not valid Unicode",
    }


def test_bytes_that_are_not_utf8_are_dropped_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"question": "caf\xe9?", "answer": "<<1+1=2>>2\\n#### 2"}\n' + b"[" * 100_000 + b"\n")
    assert [(item.line, item.reason) for item in question_tasks(path) if isinstance(item, Dropped)] == [
        (1, "not valid Unicode"),
        (2, "not JSON"),
    ]


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="No such file"):
        list(annotation_tasks(tmp_path / "train.jsonl"))


@pytest.mark.parametrize(
    ("annotation", "kept"),
    [
        ("2/3=0.67", True),  # rounded
        ("2/3=.66", True),  # cut
        ("2/3=0.68", False),
        ("2/3=0.65", False),
        ("7/2=4", True),  # half rounded up
        ("7/2=3", False),
        ("5/3=2", True),
        ("5/3=1", False),  # an integer that was cut is taken for a mistake
        ("1/8=0.13", True),
        ("1/8=0.125", True),
        ("1/8=1/8", True),
        ("1/8=1/9", False),
        ("1/8=12.5%", True),
        ("1/8=12%", True),
        ("1/8=14%", False),
        ("18*.5=9.00", True),
        ("18*.5=9.01", False),
        ("100-150=-50", True),
        ("100-150=50", False),
    ],
)
def test_a_stated_result_may_be_rounded_but_not_wrong(annotation: str, kept: bool) -> None:
    try:
        read_annotation(annotation)
    except DatasetError as error:
        assert (kept, error.message) == (False, "result disagrees")
    else:
        assert kept


@given(st.fractions(-10_000, 10_000), st.integers(0, 6))
def test_a_correctly_rounded_result_always_agrees(value: Fraction, places: int) -> None:
    unit = Fraction(1, 10**places)
    assert agrees(value, Fraction(round(value * 10**places), 10**places), unit) or (
        # Half of the last place towards zero is the one rounding that is not accepted for integers.
        places == 0 and abs(value - round(value)) == Fraction(1, 2)
    )
    assert not agrees(value, value + 2 * unit, unit)


@given(st.text(alphabet="<>\n1+= ", max_size=60))
def test_no_bracket_is_lost_when_annotations_are_found(text: str) -> None:
    brackets = len(re.findall("<<|>>", text))
    found = list(annotations(text))
    assert sum(2 if closed else 1 for _, closed in found) == brackets


def test_lines_are_read_as_those_of_other_sources_are(tmp_path: Path) -> None:
    row = {"question": "How much is 2+3?", "answer": "<<2+3=5>>5\n#### 5"}
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(row).encode()))
    for source in (tmp_path / "train.jsonl.gz", tmp_path):
        (task,) = gsm8k(SourceOptions(files=(str(source),)))
        assert isinstance(task, Task) and task.answer == "5"
    with pytest.raises(DatasetError, match=r"No such file: .*nowhere \(--file\)"):
        list(gsm8k(SourceOptions(files=(str(tmp_path / "nowhere"),))))
