"""The rows of tasks have the values of the tasks, whether these are shared with other tasks or not."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.arrays import as_integers, as_truths, lists_of_texts, numbers, texts, truths
from aworld_train.dataset.columns import FamilyIndex, to_columns
from aworld_train.dataset.rows import RowMaker
from aworld_train.dataset.schema import GROUND_TRUTHS, SCHEMA, schema_with
from aworld_train.dataset.tasks import Task, TaskKind, question_key
from aworld_train.errors import DatasetError

words = st.text(st.characters(codec="utf-8"), max_size=6)
tasks = st.builds(
    Task,
    data_source=st.sampled_from(["a", "b"]),
    ability=st.just("any"),
    kind=st.sampled_from(TaskKind),
    subject=words,
    message=words | st.builds("{}{}".format, st.sampled_from(["", "Q: "]), words),
    answer=words,
    scorer=st.sampled_from(["exact", "f1"]),
    answer_schema=st.just("answer"),
    id=words,
    system=st.sampled_from(["", "Be kind.", "Sei nett: ß"]) | words,
    level=st.sampled_from(["", "1"]),
    attachments=st.lists(words, max_size=2).map(tuple),
    ground_truths=st.just(()) | st.lists(words, min_size=2, max_size=3).map(tuple),
    file=st.sampled_from(["", "x.jsonl"]),
    line=st.integers(0, 2**40),
)


@given(st.lists(tasks, max_size=12), st.integers(0, 3))
def test_a_row_says_what_its_task_says(
    monkeypatch_shared: Callable[[int], None], tasks: list[Task], shared: int
) -> None:
    monkeypatch_shared(shared)
    tasks = [
        Task(**{**{f: getattr(t, f) for f in t.__struct_fields__}, "message": t.message + t.subject})
        for t in tasks
    ]
    families = FamilyIndex()
    flat = to_columns(tasks, 0, families, 3)
    several = any(task.ground_truths for task in tasks)
    assert families.lists == ({GROUND_TRUTHS} if several else set())
    rows = RowMaker(families.listed(), [GROUND_TRUTHS] if several else ()).rows(
        flat, np.arange(len(tasks)), "train"
    )
    rows.validate(full=True)
    assert rows.schema.equals(schema_with(GROUND_TRUTHS) if several else SCHEMA)
    for number, (task, row) in enumerate(zip(tasks, rows.to_pylist(), strict=True)):
        system_messages = [{"role": "system", "content": task.system}] if task.system else []
        assert row["prompt"] == [*system_messages, {"role": "user", "content": task.message}]
        assert row["reward_model"] == {"style": "rule", "ground_truth": task.answer}
        info = row["extra_info"]
        is_question = task.kind is TaskKind.question
        assert info["question"] == (task.subject if is_question else None)
        assert info["expression"] == (None if is_question else task.subject)
        assert info["id"] == task.id or (not task.id and len(info["id"]) == 16)
        assert (info["level"] or "", tuple(info["attachments"] or ())) == (task.level, task.attachments)
        assert tuple(info.get("ground_truths") or ()) == task.ground_truths
        assert ("ground_truths" in info) == several
        assert (info["index"], info["split"], info["file"], info["line"]) == (
            number,
            "train",
            task.file,
            task.line,
        )
        assert (row["data_source"], info["scorer"]) == (task.data_source, task.scorer)


@pytest.fixture(scope="module")
def monkeypatch_shared() -> Iterator[Callable[[int], None]]:
    """Sets how many texts are held once, so that some are not."""
    patch = pytest.MonkeyPatch()
    yield lambda count: patch.setattr("aworld_train.dataset.columns._MAX_SHARED", count)
    patch.undo()


@given(words, words)
def test_questions_are_the_same_whatever_their_case_and_spacing(first: str, second: str) -> None:
    for text in (first, f" {first}  {second}\n", f"{first} {second}"):
        assert question_key(text) == " ".join(text.casefold().split())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": 3}, r"own\.txt, line 9\) whose answer is int 3, not text"),
        ({"subject": "\ud800"}, r"own\.txt, line 9\) whose subject is not valid Unicode"),
        ({"level": None}, "whose level is NoneType None, not text"),
        ({"line": "seven"}, "tasks that cannot be kept"),
    ],
)
def test_a_task_of_the_wrong_make_is_named(changed: dict[str, object], message: str) -> None:
    fields = {
        **dict.fromkeys(("data_source", "ability", "subject", "message", "answer", "scorer"), "x"),
        **{"kind": TaskKind.question, "answer_schema": "answer", "file": "own.txt", "line": 9},
    }
    with pytest.raises(DatasetError, match=message):
        to_columns([Task(**{**fields, **changed})], 0, FamilyIndex(), 0)


@given(st.lists(words), st.lists(st.booleans()), st.lists(st.integers(-5, 5)), st.lists(st.lists(words)))
def test_arrays_hold_the_values_they_were_made_of(
    some: list[str], flags: list[bool], counts: list[int], lists: list[list[str]]
) -> None:
    assert texts(some).to_pylist() == some
    assert texts(some, empty_is_null=True).to_pylist() == [value or None for value in some]
    assert truths(np.array(flags, dtype=bool)).to_pylist() == flags
    assert as_truths(pa.array([*flags, None], pa.bool_())[1:]).tolist() == [*flags, False][1:]
    assert as_integers(numbers(counts)[1:]).tolist() == counts[1:]
    assert lists_of_texts(lists).to_pylist() == [inner or None for inner in lists]


def test_texts_that_no_array_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.dataset.arrays.MAX_BYTES", 10)
    with pytest.raises(DatasetError, match="2 tasks in a row"):
        texts(["123456", "123456"])
