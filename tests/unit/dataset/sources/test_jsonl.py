"""JSON lines as a source: the task of a line, and no line without a task or a reason."""

import bz2
import gzip
import json
import lzma
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources.input_files import MAX_LINE_BYTES
from aworld_train.dataset.sources.jsonl import jsonl
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError
from tests.task_tables import one_by_one


def read(
    content: bytes | str | list[dict[str, object]],
    tmp_path: Path,
    name: str = "tasks.jsonl",
    **options: object,
):
    path = tmp_path / name
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return one_by_one(jsonl(SourceOptions(files=(str(path),), **options)))  # type: ignore[arg-type]


def test_agentrls_fields_become_a_task(tmp_path: Path) -> None:
    row = {
        "id": "a1",
        "query": " Who? ",
        "answer": "Ada",
        "scorer": "f1",
        "answer_schema": "boxed",
        "level": 2,
    }
    (task,) = read([row], tmp_path)
    assert isinstance(task, Task)
    assert (task.id, task.subject, task.message, task.answer) == ("a1", "Who?", "Who?", "Ada")
    assert (task.scorer, task.answer_schema, task.level) == ("f1", "boxed", "2")
    assert (task.data_source, task.file, task.line) == ("tasks", "tasks.jsonl", 1)


@pytest.mark.parametrize(
    "query", ["query", "question", "Question", "PROMPT", "problem", "input", "instruction"]
)
@pytest.mark.parametrize(
    "answer", ["answer", "final_answer", "Final answer", "solution", "target", "ground_truth"]
)
def test_other_names_of_the_fields_are_known(query: str, answer: str, tmp_path: Path) -> None:
    (task,) = read([{query: "Who?", answer: "Ada", "remark": "x"}], tmp_path)
    assert isinstance(task, Task) and (task.message, task.answer) == ("Who?", "Ada")


def test_a_fields_own_name_goes_before_others(tmp_path: Path) -> None:
    (task,) = read([{"problem": "Who?", "solution": "It was her.", "answer": "Ada"}], tmp_path)
    assert isinstance(task, Task) and task.answer == "Ada"


def test_two_columns_that_could_be_the_query_are_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"line 1: 'problem' and 'input' could each be the query.*--map query="
    ):
        read([{"problem": "a", "input": "b", "answer": "c"}], tmp_path)


def test_map_decides_and_reaches_into_columns(tmp_path: Path) -> None:
    row = {"problem": "a", "input": "b", "gold": {"text": ["x"], "value": "c"}}
    (task,) = read([row], tmp_path, columns={"query": "input", "answer": "gold.value"})
    assert isinstance(task, Task) and (task.message, task.answer) == ("b", "c")


def test_a_mapped_column_that_is_nowhere_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--map query=Qestion: .* has no column 'Qestion'.*Did you mean 'Question'"
    ):
        read([{"Question": "a", "answer": "b"}], tmp_path, columns={"query": "Qestion"})


def test_a_mapped_field_that_there_is_not_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'query'"):
        read([{"Question": "a", "answer": "b"}], tmp_path, columns={"qery": "Question"})


def test_a_file_without_an_answer_column_says_which_columns_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"known to be the answer; there are the columns 'question', 'reply'.*--map answer="
    ):
        read([{"question": "a", "reply": "b"}], tmp_path)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1.10", "1.10"),
        ("72", "72"),
        ("-0.5e3", "-0.5e3"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("true", "true"),
        ('"1,080 "', "1,080"),
        ('"\\u00e9"', "é"),
    ],
)
def test_an_answer_is_the_text_that_was_written(written: str, text: str, tmp_path: Path) -> None:
    (task,) = read(f'{{"query": "q", "answer": {written}}}\n', tmp_path)
    assert isinstance(task, Task) and task.answer == text and type(task.answer) is str


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank line"),
        (b"  \t", "blank line"),
        (b'{"query": "q", "answer": ', "not JSON"),
        (b"nonsense", "not JSON"),
        (b'"text"', "not a JSON object"),
        (b'[{"query": "q"}]', "not a JSON object"),
        (b'{"query": "q\xff", "answer": "a"}', "not UTF-8; for text from Windows try --encoding cp1252"),
        (b'{"query": "q", "answer": "\\ud800"}', "not valid Unicode"),
        (b'{"query": "q", "answer": NaN}', "a number is NaN or infinite"),
        (b'{"query": "q", "answer": -Infinity}', "a number is NaN or infinite"),
        (b'{"query": "q", "answer": ' + b"[" * 100_000 + b"}", "nested too deeply"),
        (b'{"answer": "a"}', "no query"),
        (b'{"query": null, "answer": "a"}', "no query"),
        (b'{"query": " ", "answer": "a"}', "no query"),
        (b'{"query": 5, "answer": "a"}', "query is not text"),
        (b'{"query": 5.5, "answer": "a"}', "query is not text"),
        (b'{"query": {"a": 1}, "answer": "a"}', "query is not text"),
        (b'{"query": "q"}', "no answer"),
        (b'{"query": "q", "answer": null}', "no answer"),
        (b'{"query": "q", "answer": "\\n"}', "no answer"),
        (b'{"query": "q", "answer": "?"}', "answer is hidden"),
        (b'{"query": "q", "answer": [["a"]]}', "answer is not text or a number"),
        (b'{"query": "q", "answer": {"a": "b"}}', "answer is not text or a number"),
        (b'{"query": "q", "answer": []}', "no answer"),
        (b'{"query": "q", "answer": ["", null]}', "no answer"),
        (b'{"query": "q", "answer": ["?", ""]}', "answer is hidden"),
        (b'{"query": "q", "ground_truths": "[a"}', "ground_truths is not a list"),
        (b'{"query": "q", "answer": "a", "answer": "b"}', "the key 'answer' comes twice"),
        (b'{"query": "q", "answer": "a", "x": 1, "x": 1}', "the key 'x' comes twice"),
        (b'{"query": "q", "answer": "a", "": 1, "": 1}', "the key '' comes twice"),
        (b'{"query": "q", "answer": {"value": "a", "value" : "b"}}', "the key 'value' comes twice"),
        (b'{"query": "q", "answer": "a", "qu\\u0065ry" : "p"}', "the key 'query' comes twice"),
        (b'{"query": "q", "answer": "a", "id": []}', "id is not text or a number"),
        (b'{"query": "q", "answer": "a", "scorer": {}}', "scorer is not text or a number"),
        (b'{"query": "q", "answer": "a", "attachments": [1]}', "attachments are not a list of texts"),
        (b'{"query": [{"role": "user"}], "answer": "a"}', "a message of the query is not text"),
        (b'{"query": [{"role": ["user"]}], "answer": "a"}', "a message of the query has no known role"),
        (b'{"query": ["q"], "answer": "a"}', "a message of the query has no known role"),
        (b'{"query": [], "answer": "a"}', "query has no user message"),
    ],
)
def test_a_line_that_is_no_task_is_dropped_with_its_reason_and_the_rest_goes_on(
    line: bytes, reason: str, tmp_path: Path
) -> None:
    good = b'{"query": "good", "answer": "a"}\n'
    items = read(good + line + b"\n" + good, tmp_path)
    assert [type(item) for item in items] == [Task, Dropped, Task]
    assert (items[1].reason, items[1].line, items[1].file) == (reason, 2, "tasks.jsonl")
    items[1].text.encode()


def test_a_line_without_end_at_the_end_of_the_file_counts(tmp_path: Path) -> None:
    assert len(read(b'{"query": "q", "answer": "a"}\r\n{"query": "p", "answer": "a"}', tmp_path)) == 2


def test_a_line_too_long_to_hold_is_dropped(tmp_path: Path) -> None:
    content = (
        b'{"query": "q", "answer": "a"}\n'
        + b"x" * (2 * MAX_LINE_BYTES + 5)
        + b'\n{"query": "p", "answer": "a"}\n'
    )
    items = read(content, tmp_path)
    assert [type(item) for item in items] == [Task, Dropped, Task]
    assert (items[1].reason, items[2].line) == ("line is too long", 3)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (task,) = read(b'\xef\xbb\xbf{"query": "q", "answer": "a"}\n', tmp_path)
    assert isinstance(task, Task)


def test_utf16_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"written in UTF-16\. Give --encoding utf-16"):
        read('{"query": "q", "answer": "a"}\n'.encode("utf-16"), tmp_path)


def test_one_json_array_is_an_error_that_says_how_to_turn_it_into_lines(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"one JSON array.*jq -c '\.\[\]' tasks\.json > tasks-lines\.jsonl"
    ):
        read('\n[\n  {"query": "q", "answer": "a"}\n]\n', tmp_path, name="tasks.json")


def test_messages_become_system_prompt_and_question(tmp_path: Path) -> None:
    row = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "wrote it?"}],
            },
            {"role": "assistant", "content": "Ada did."},
        ],
        "answer": "Ada",
    }
    (task,) = read([row], tmp_path)
    assert isinstance(task, Task) and (task.system, task.message) == ("Be brief.", "Who wrote it?")


def test_what_comes_before_the_last_question_is_kept(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    (task,) = read([{"messages": messages, "answer": "d"}], tmp_path)
    assert isinstance(task, Task) and (task.subject, task.message) == ("a\n\nb\n\nc", "c")
    assert json.loads(task.earlier) == messages[:2]


@pytest.mark.parametrize(
    "last, reason",
    [
        ({"role": "assistant", "content": "e"}, "more than one user message, and does not end with one"),
        ({"role": "tool", "content": "e"}, "more than one user message, and a tool's"),
    ],
)
def test_a_conversation_after_several_questions_is_dropped(
    last: dict[str, str], reason: str, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "c"}, last]
    (dropped,) = read([{"messages": messages, "answer": "d"}], tmp_path)
    assert isinstance(dropped, Dropped) and dropped.reason == f"query has {reason}"


def test_verls_own_rows_are_understood(tmp_path: Path) -> None:
    row = {
        "prompt": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "Look at /attachments/a.txt"},
        ],
        "reward_model": {"style": "rule", "ground_truth": "a"},
        "data_source": "mine",
        "extra_info": {
            "id": "7",
            "scorer": "f1",
            "answer_schema": "boxed",
            "attachments": ["/attachments/a.txt"],
        },
    }
    (task,) = read([row], tmp_path)
    assert isinstance(task, Task)
    assert (task.system, task.message, task.answer) == ("s", "Look at /attachments/a.txt", "a")
    assert (task.id, task.scorer, task.answer_schema, task.data_source) == ("7", "f1", "boxed", "mine")
    assert task.attachments == ("/attachments/a.txt",)


def test_an_unknown_scorer_is_an_error_with_line_and_nearest_name(tmp_path: Path) -> None:
    rows = [{"query": "q", "answer": "a"}, {"query": "p", "answer": "a", "scorer": "exakt"}]
    with pytest.raises(
        DatasetError, match=r"tasks\.jsonl, line 2: unknown scorer 'exakt'.*Did you mean 'exact'\?"
    ):
        read(rows, tmp_path)


def test_an_unknown_answer_schema_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"line 1: unusable answer_schema 'box'"):
        read([{"query": "q", "answer": "a", "answer_schema": "box"}], tmp_path)


def test_what_the_build_is_told_goes_before_the_row(tmp_path: Path) -> None:
    row = {"query": "q", "answer": "a", "scorer": "nonsense", "answer_schema": "nonsense", "system": "row's"}
    (task,) = read([row], tmp_path, scorer="f1", answer_schema="boxed", system="told")
    assert isinstance(task, Task) and (task.scorer, task.answer_schema, task.system) == (
        "f1",
        "boxed",
        "told",
    )


def test_rows_without_scorer_are_compared_exactly(tmp_path: Path) -> None:
    (task,) = read([{"query": "q", "answer": "a"}], tmp_path)
    assert isinstance(task, Task) and (task.scorer, task.answer_schema, task.system) == (
        "exact",
        "answer",
        "",
    )


def test_tests_of_code_may_be_a_mapping_and_other_answers_not(tmp_path: Path) -> None:
    answer = {"tests": "assert f(1) == 'é'", "timeout": 1.50}
    rows = [{"query": "q", "answer": answer, "scorer": scorer} for scorer in ("code_tests", "exact")]
    task, dropped = read(rows, tmp_path)
    assert isinstance(task, Task) and json.loads(task.answer)["tests"] == answer["tests"]
    assert isinstance(dropped, Dropped)


def test_an_id_with_other_content_is_dropped_and_a_repeat_is_not(tmp_path: Path) -> None:
    rows = [{"id": 1, "query": "q", "answer": "a"}] * 2 + [{"id": 1, "query": "q", "answer": "b"}]
    first, repeat, other = read(rows, tmp_path)
    assert isinstance(first, Task) and isinstance(repeat, Task)
    assert isinstance(other, Dropped) and other.reason == "id of another row with other content"


def test_attachments_are_named_in_the_message_as_tools_see_them(tmp_path: Path) -> None:
    row = {"query": "Sum it up.", "answer": "a", "attachments": ["b.csv", "/elsewhere/c.csv"]}
    (task,) = read([row], tmp_path, attachments_at="/data/")
    assert isinstance(task, Task) and task.attachments == ("/data/b.csv", "/elsewhere/c.csv")
    assert task.subject == "Sum it up." and task.message.startswith("Sum it up.\n\n")
    assert task.message.endswith("\n/data/b.csv\n/elsewhere/c.csv")


def test_levels_that_were_not_asked_for_are_counted(tmp_path: Path) -> None:
    items = read(
        [{"query": f"q{level}", "answer": "a", "level": level} for level in (1, 2)], tmp_path, levels=("2",)
    )
    assert [getattr(item, "reason", "") for item in items] == ["level was not asked for", ""]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
def test_compressed_files_are_read(suffix: str, tmp_path: Path) -> None:
    content = "".join(json.dumps({"query": f"q{n}", "answer": n}) + "\n" for n in range(3000)).encode()
    packed = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    }[suffix](content)
    items = read(packed, tmp_path, name="tasks.jsonl" + suffix)
    assert len(items) == 3000 and isinstance(items[-1], Task) and items[-1].data_source == "tasks"


@pytest.mark.parametrize("name", ["tasks.jsonl.gz", "tasks.jsonl.zst", "tasks.jsonl.bz2", "tasks.jsonl.xz"])
def test_a_compressed_file_that_is_cut_off_is_an_error(name: str, tmp_path: Path) -> None:
    content = os.urandom(50_000).hex().encode() + b"\n"
    packed = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    }[name.rpartition(".")[2]](content)
    with pytest.raises(DatasetError, match="cannot be read to its end"):
        read(packed[:-20_000], tmp_path, name=name)


def test_a_folder_stands_for_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.txt"):
        content = f'{{"query": "{name}", "answer": "a"}}\n'.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    options = SourceOptions(files=(str(tmp_path),))
    assert [item.message for item in one_by_one(jsonl(options)) if isinstance(item, Task)] == [
        "a.jsonl.gz",
        "b.jsonl",
    ]
    assert [path.name for path in options.read] == ["a.jsonl.gz", "b.jsonl"]


@pytest.mark.parametrize(
    ("file", "message"), [("missing.jsonl", "No such file"), (".", "without a file that ends with .jsonl")]
)
def test_what_is_not_there_is_an_error(file: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        list(jsonl(SourceOptions(files=(str(tmp_path / file),))))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_ROWS = st.dictionaries(
    st.sampled_from(["id", "query", "answer", "level", "system", "attachments", "x"]), _VALUES
)
_LINES = st.binary(max_size=40).filter(lambda line: b"\n" not in line) | _ROWS.map(
    lambda row: json.dumps(row).encode()
)


@given(st.lists(_LINES, max_size=8))
def test_every_line_becomes_a_task_or_is_dropped_in_order(lines: list[bytes]) -> None:
    lines = [b'{"query": "q", "answer": "a"}', *lines]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.jsonl")
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        items = one_by_one(jsonl(SourceOptions(files=(str(path),))))
    assert [item.line for item in items] == list(range(1, len(lines) + 1))
    for item in items:
        if isinstance(item, Task):
            assert item.message.strip() and item.answer.strip()
            "".join((item.message, item.answer, item.id, item.system, *item.attachments)).encode()
        else:
            item.text.encode()
