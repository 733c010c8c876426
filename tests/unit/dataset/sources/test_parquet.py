"""Parquet files as a source: any column type that can be written as text."""

import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.parquet import BATCH_RECORDS, parquet
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError


def read(table: pa.Table, tmp_path: Path, **options: object) -> list[Task | Dropped]:
    path = tmp_path / "tasks.parquet"
    pq.write_table(table, path)
    return list(parquet(SourceOptions(files=(str(path),), **options)))  # type: ignore[arg-type]


def answers(column: pa.Array, tmp_path: Path) -> list[str]:
    items = read(pa.table({"query": [f"q{n}" for n in range(len(column))], "answer": column}), tmp_path)
    return [item.answer if isinstance(item, Task) else item.reason for item in items]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([72, None], pa.int32()), ["72", "no answer"]),
        (pa.array([2**63], pa.uint64()), ["9223372036854775808"]),
        (
            pa.array([0.1, 72.0, float("nan"), float("inf")], pa.float32()),
            ["0.1", "72"] + ["a number is NaN or infinite"] * 2,
        ),
        (pa.array([0.1, 72.0, 1e22, float("nan")]), ["0.1", "72", "1e+22", "a number is NaN or infinite"]),
        (pa.array([1.5], pa.float16()), ["1.5"]),
        (pa.array([Decimal("1.10")]), ["1.10"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        (pa.array(["Ada", None, " ", "?"]), ["Ada", "no answer", "no answer", "answer is hidden"]),
        (pa.array(["Ada"]).dictionary_encode(), ["Ada"]),
        (pa.array(["Ada"], pa.large_string()), ["Ada"]),
        (pa.array(["Ada"], pa.string_view()), ["Ada"]),
        (pa.array([b"Ada", b"\xff"]), ["Ada", "not valid Unicode"]),
        (pa.array([[["a", "b"]]]), ["answer is not text or a number"]),
        (pa.array([Decimal("0.00000010")]), ["0.00000010"]),
        (pa.array([0.1], pa.float32()).dictionary_encode(), ["0.1"]),
        (pa.array([-800_000], pa.date32()), ["-0221-09-04"]),
        (pa.array([10**18], pa.timestamp("us")), ["no answer"]),
        (pa.nulls(1), ["no answer"]),
    ],
)
def test_answers_of_any_type_become_text_or_are_dropped(
    column: pa.Array, texts: list[str], tmp_path: Path
) -> None:
    assert answers(column, tmp_path) == texts


def extension(kind: pa.ExtensionType, values: list[object]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def test_json_texts_become_what_they_stand_for_wherever_they_are(tmp_path: Path) -> None:
    def json_array(*texts: str | None) -> pa.Array:
        return extension(pa.json_(), list(texts))

    texts = ['"Paris"', "4", "1.10", '["Oslo","Christiania"]', "null", None, '"a \\"b\\""']
    expected = ["Paris", "4", "1.10", "Oslo", "no answer", "no answer", 'a "b"']
    assert answers(json_array(*texts), tmp_path) == expected
    system, user = '{"role":"system","content":"s"}', '{"role":"user","content":"q"}'
    prompts = (
        json_array(f"[{system},{user}]"),
        pa.ListArray.from_arrays(pa.array([0, 2]), json_array(system, user)),
        pa.StructArray.from_arrays([json_array("[]"), pa.array([0.1], pa.float32())], ["role", "n"]),
    )
    for prompt in prompts[:2]:
        table = pa.table({"prompt": prompt, "choices": json_array('["x","y"]'), "answer": ["y"]})
        (task,) = read(table, tmp_path)
        assert isinstance(task, Task)
        assert (task.system, task.subject, task.answer) == ("s", "q\nA. x\nB. y", "B")
    table = pa.table({"q": prompts[2], "answer": ["a"]})
    (dropped,) = read(table, tmp_path, columns={"query": "q.role"})
    assert isinstance(dropped, Dropped) and dropped.reason == "query has no user message"
    with pytest.raises(DatasetError, match=r"tasks\.parquet .*arrow\.json cannot be read"):
        answers(json_array("{"), tmp_path)


def test_ids_and_maps_are_read_as_they_are_written(tmp_path: Path) -> None:
    ids = extension(pa.uuid(), [UUID(int=5).bytes, None])
    kind = pa.map_(pa.string(), pa.float32())
    table = pa.table({"uuid": ids, "q": ["a", "b"], "choices": pa.array([[("A", 0.1), ("B", 2)]] * 2, kind)})
    one, two = read(table.append_column("answer", [["B", "0.1"]]), tmp_path, columns={"query": "q"})
    assert isinstance(one, Task) and isinstance(two, Task)
    assert (one.id, one.answer, one.subject) == (str(UUID(int=5)), "B", "a\nA. 0.1\nB. 2")
    assert (two.id, two.answer) == ("", "A")


def test_a_column_of_lengths_of_time_is_refused_by_name(tmp_path: Path) -> None:
    took = pa.array([None], pa.duration("us"))
    with pytest.raises(
        UsageError, match=r"tasks\.parquet: the column 'answer', which gives the answer, has the type dur"
    ):
        answers(took, tmp_path)
    inside = pa.StructArray.from_arrays([took, pa.array(["a"])], ["took", "a"])
    table = pa.table({"query": ["q"], "took": took, "answer": inside})
    with pytest.raises(UsageError, match=r"the column 'answer\.took', which"):
        read(table, tmp_path, columns={"answer": "answer.took"})
    # What gives no field may have any type.
    (task,) = read(table, tmp_path, columns={"answer": "answer.a"})
    assert isinstance(task, Task) and task.answer == "a"


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1_700_000_000_123_456_789, pa.timestamp("ns"), "2023-11-14T22:13:20.123456789"),
        (1_700_000_000_500_000, pa.timestamp("us"), "2023-11-14T22:13:20.5"),
        (1_700_000_000_000_000, pa.timestamp("us"), "2023-11-14T22:13:20"),
        (1_700_000_000, pa.timestamp("s", "UTC"), "2023-11-14T22:13:20+00:00"),
        (1_700_000_000_000, pa.timestamp("ms", "Europe/Berlin"), "2023-11-14T23:13:20+01:00"),
        (1_700_000_000_120_000, pa.timestamp("us", "-03:30"), "2023-11-14T18:43:20.12-03:30"),
        (46_800, pa.time32("s"), "13:00:00"),
        (46_800_000_000_120, pa.time64("ns"), "13:00:00.00000012"),
        (0, pa.date32(), "1970-01-01"),
    ],
)
def test_a_time_is_iso_text_with_its_zone_and_no_digit_more(
    value: int, kind: pa.DataType, text: str, tmp_path: Path
) -> None:
    column = pa.array([value], kind)
    assert answers(column, tmp_path) == [text]
    nested = pa.StructArray.from_arrays([pa.array([[value]], pa.list_(kind))], ["value"])
    assert answers(nested, tmp_path) == [text]


def test_text_that_is_no_utf8_costs_its_row_alone(tmp_path: Path) -> None:
    raw = pa.array([b"q", b"\xff\xfe", b"p"])
    query = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    items = read(pa.table({"query": query, "answer": ["a"] * 3}), tmp_path)
    assert [type(item) for item in items] == [Task, Dropped, Task]
    assert isinstance(items[1], Dropped) and (items[1].reason, items[1].line) == ("not valid Unicode", 2)


def test_message_lists_become_system_prompt_and_question(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    as_lists = [{"role": ["system", "user"], "content": ["s", "q"]}]
    for prompt in ([messages], as_lists):
        (task,) = read(pa.table({"prompt": prompt, "answer": ["a"]}), tmp_path)
        assert isinstance(task, Task) and (task.system, task.message) == ("s", "q")


def test_verls_own_rows_are_understood(tmp_path: Path) -> None:
    row = {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "q"}],
        "reward_model": {"style": "rule", "ground_truth": "a"},
        "extra_info": {"index": 0, "level": "2", "question": "bare"},
    }
    (task,) = read(pa.Table.from_pylist([row]), tmp_path)
    assert isinstance(task, Task) and (task.message, task.answer, task.level) == ("q", "a", "2")
    assert (task.subject, task.data_source) == ("bare", "mine")


def test_rows_are_counted_over_batches(tmp_path: Path) -> None:
    count = 2 * BATCH_RECORDS + 3
    items = read(pa.table({"query": [f"q{n}" for n in range(count)], "answer": range(count)}), tmp_path)
    assert [item.line for item in items] == list(range(1, count + 1))
    assert isinstance(items[-1], Task) and items[-1].answer == str(count - 1)


def test_a_column_whose_name_has_a_dot_is_read(tmp_path: Path) -> None:
    table = pa.table({"a.query": ["q"], "a": [{"answer": "x"}]})
    (task,) = read(table, tmp_path, columns={"query": "a.query", "answer": "a.answer"})
    assert isinstance(task, Task) and (task.message, task.answer) == ("q", "x")


def test_a_table_without_a_query_is_an_error_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="known to be the query; there are the columns 'text', 'answer'"):
        read(pa.table({"text": ["q"], "answer": ["a"]}), tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b"query,answer\n"])
def test_a_file_that_is_no_parquet_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").write_bytes(content)
    with pytest.raises(DatasetError, match="cannot be read to its end"):
        list(parquet(SourceOptions(files=(str(tmp_path / "tasks.parquet"),))))
