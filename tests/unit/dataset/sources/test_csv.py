"""CSV files as a source: delimiters, quotes, and rows that are broken."""

import codecs
import csv as csv_format
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources import csv as csv_source
from aworld_train.dataset.sources.columns import Columns, FileColumns
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
        (b"q\xff,a", "not UTF-8; for text from Windows try --encoding cp1252"),
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


@pytest.mark.parametrize("after", ["", 'last,"y"\n', '"last",y\n', "last,y", 'last,"",\n'])
def test_a_quote_that_is_never_closed_costs_its_own_line_alone(after: str, tmp_path: Path) -> None:
    rows = "".join(f"q{number},a{number}\n" for number in range(1000))
    items = read(f'query,answer\ngood,a\n"bad,b\n{rows}{after}', tmp_path)
    assert [(item.line, item.text, item.reason) for item in items[:1002] if isinstance(item, Dropped)] == [
        (3, '"bad,b', "broken quotes")
    ]
    read_back = [(item.line, item.message, item.answer) for item in items[2:1002] if isinstance(item, Task)]
    assert read_back == [(number + 4, f"q{number}", f"a{number}") for number in range(1000)]


def test_a_quote_that_a_later_row_closes_by_chance_costs_its_own_line_alone(tmp_path: Path) -> None:
    items = read('query,answer\n"bad,b\ngood,a\n",odd",c\nlast,z\n', tmp_path)
    assert [(type(item), item.line) for item in items] == [(Dropped, 2), (Task, 3), (Task, 4), (Task, 5)]
    assert isinstance(items[0], Dropped) and items[0].reason == "other number of fields than the header has"
    assert isinstance(items[2], Task) and items[2].message == ",odd"


@pytest.mark.parametrize("line", ['a","b', '"a,b', 'a,"', '"a""', '"', '""', '"","', 'a,b\n"x'])
def test_whatever_the_quotes_each_line_is_read_a_few_times_at_most(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_next, calls = csv_source._Lines.__next__, [0]

    def counted(lines: csv_source._Lines) -> str:
        calls[0] += 1
        return read_next(lines)

    monkeypatch.setattr(csv_source._Lines, "__next__", counted)
    content = "query,answer\n" + f"{line}\n" * 2000
    read(content, tmp_path)
    assert 0 < calls[0] < 20 * content.count("\n")


def test_what_an_open_quote_holds_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.dataset.sources.csv.MAX_RECORD_BYTES", 200)
    long = '"' + "x\n" * 50 + '",a\n'
    longer = '"' + "y\n" * 500 + '",b\n'
    items = read(f"query,answer\n{long}{longer}good,a\n", tmp_path)
    assert isinstance(items[0], Task) and items[0].message.count("x") == 50
    assert isinstance(items[1], Dropped) and (items[1].text, items[1].line) == ('"y', 53)
    assert isinstance(items[-1], Task) and (items[-1].message, items[-1].line) == ("good", 554)
    assert {item.line for item in items} == {2, *range(53, 555)}


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


_FIELD = st.lists(
    st.sampled_from(["a", "b", '"', '""', ",", "\n", "\r\n", " ", "é"]),
    max_size=6,
).map("".join)


@given(st.lists(st.tuples(_FIELD, _FIELD), max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_well_formed_files_are_read_as_pythons_csv_module_reads_them(
    rows: list[tuple[str, str]], line_end: str, quote_all: bool
) -> None:
    written = io.StringIO()
    quoting = csv_format.QUOTE_ALL if quote_all else csv_format.QUOTE_MINIMAL
    writer = csv_format.writer(written, lineterminator=line_end, quoting=quoting)
    writer.writerows([("query", "answer"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.csv")
        path.write_bytes(written.getvalue().encode())
        columns = FileColumns(Columns({}).table_plan)
        records = list(csv_source._records(path, columns, "utf-8"))
    assert [record for _, record, _ in records] == [list(row) for row in rows]


@given(
    st.lists(
        st.sampled_from(["a,b", '"a,b', 'a",b', '"a",b', 'a,""', '"', '"",', 'a,"b', 'b",c', ""]), max_size=12
    )
)
def test_every_line_is_in_a_record_or_listed_whatever_the_quotes(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.csv")
        path.write_text("".join(f"{line}\n" for line in ["query,answer", *lines]))
        records = list(csv_source._records(path, FileColumns(Columns({}).table_plan), "utf-8"))
    place = 2
    for line, record, fields in records:
        assert line == place
        if isinstance(record, str):
            assert record == lines[place - 2]
            place += 1
        else:
            place += 1 + sum(field.count("\n") for field in record)
            assert place == line + 1 or not isinstance(fields, str)
    assert place == len(lines) + 2


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
