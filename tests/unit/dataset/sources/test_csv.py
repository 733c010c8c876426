"""CSV files as a source: delimiters, quotes, and rows that are broken."""

import codecs
import csv as csv_format
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources.csv import csv
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError


def read(content: bytes | str, tmp_path: Path, **options: object) -> list[Task | Dropped]:
    path = tmp_path / "tasks.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(csv(SourceOptions(files=(str(path),), **options)))  # type: ignore[arg-type]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_out(delimiter: str, tmp_path: Path) -> None:
    content = delimiter.join(('"id"', '"question, or |;\t task"', "question", "answer")) + "\n"
    content += delimiter.join(("1", "x", '"a,b;c|d\te"', "007")) + "\n"
    (task,) = read(content, tmp_path)
    assert isinstance(task, Task) and (task.id, task.message, task.answer) == ("1", "a,b;c|d\te", "007")


def test_quoted_fields_hold_line_ends_and_quotes_and_lines_are_counted(tmp_path: Path) -> None:
    content = 'query,answer\r\n"first\nsecond ""line""",1.10\r\nnext,2\r\n'
    first, second = read(content, tmp_path)
    assert isinstance(first, Task) and (first.message, first.answer, first.line) == (
        'first\nsecond "line"',
        "1.10",
        2,
    )
    assert isinstance(second, Task) and second.line == 4


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    (task,) = read(codecs.BOM_UTF8 + b"query,answer\nq,a\n", tmp_path)
    assert isinstance(task, Task)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank line"),
        (b"only one", "other number of fields than the header has"),
        (b"a,b,c", "other number of fields than the header has"),
        (b"q\xff,a", "not valid Unicode"),
        (b'"q"x,a', "broken quotes"),
        (b",a", "no query"),
        (b"q,", "no answer"),
        (b"q,?", "answer is hidden"),
    ],
)
def test_a_row_that_is_no_task_is_dropped_with_its_reason_and_the_rest_goes_on(
    line: bytes, reason: str, tmp_path: Path
) -> None:
    items = read(b"query,answer\ngood,a\n" + line + b"\ngood,a\n", tmp_path)
    assert [type(item) for item in items] == [Task, Dropped, Task]
    assert isinstance(items[1], Dropped) and (items[1].reason, items[1].line) == (reason, 3)
    items[1].text.encode()


def test_a_quote_that_is_never_closed_costs_its_lines_and_says_which(tmp_path: Path) -> None:
    items = read('query,answer\ngood,a\n"bad,b\nlost,c\n', tmp_path)
    assert isinstance(items[0], Task) and len(items) == 2
    assert isinstance(items[1], Dropped) and (items[1].reason, items[1].text) == (
        "broken quotes",
        "lines 3 to 4",
    )


def test_a_field_longer_than_the_csv_modules_own_limit_is_read(tmp_path: Path) -> None:
    (task,) = read("query,answer\n" + "q" * 200_000 + ",a\n", tmp_path)
    assert isinstance(task, Task) and len(task.message) == 200_000


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is empty"):
        read("", tmp_path)


def test_a_header_without_an_answer_is_an_error_that_lists_the_columns(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="known to be the answer; there are the columns 'query', 'reply'"):
        read("query,reply\nq,a\n", tmp_path)


def test_a_column_that_comes_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has the column 'answer', which gives the answer, more than once"):
        read("query,answer,answer\nq,a,b\n", tmp_path)


def test_map_names_the_columns(tmp_path: Path) -> None:
    (task,) = read("F,A\nq,a\n", tmp_path, columns={"query": "F", "answer": "A"})
    assert isinstance(task, Task) and (task.message, task.answer) == ("q", "a")


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
            st.text(st.characters(codec="utf-8")).map(lambda text: "a" + text),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(",;\t|"),
)
def test_what_the_csv_module_writes_is_read_back(rows: list[tuple[str, str]], delimiter: str) -> None:
    written = io.StringIO()
    writer = csv_format.writer(written, delimiter=delimiter, quoting=csv_format.QUOTE_ALL)
    writer.writerows([("query", "answer"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.csv")
        path.write_bytes(written.getvalue().encode())
        items = list(csv(SourceOptions(files=(str(path),))))
    assert [(item.message, item.answer) for item in items if isinstance(item, Task)] == [
        (query.strip(), answer.strip()) for query, answer in rows
    ]
