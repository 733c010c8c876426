"""GAIA snapshots as a source, in both their layouts; the questions are invented, only the shape is GAIA's."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build
from aworld_train.dataset.prompts.gaia import PLACES
from aworld_train.dataset.sources.gaia import gaia
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task, TaskKind
from aworld_train.env.attachments import find_data
from aworld_train.errors import DatasetError, UsageError
from aworld_train.reward.extraction import extract

NOTE = "The annotator went to the shelf and counted."
ROWS = [
    {
        "task_id": "aa-1",
        "Question": "How many jars are on the shelf?",
        "Level": 1,
        "Final answer": "17",
        "file_name": "",
    },
    {
        "task_id": "bb-2",
        "Question": "Which jar is oldest?",
        "Level": 2,
        "Final answer": "plum",
        "file_name": "bb-2.xlsx",
    },
    {
        "task_id": "cc-3",
        "Question": "What does the label say?",
        "Level": 3,
        "Final answer": "keep cool",
        "file_name": "cc-3.png",
    },
]
LAYOUTS = ("jsonl", "parquet", "levels")


def snapshot(
    root: Path, layout: str = "jsonl", part: str = "validation", rows: list[dict[str, object]] = ROWS
) -> Path:
    """A folder as it is downloaded, with the files of all rows but those whose name begins with ``missing``."""
    folder = root / "2023" / part
    folder.mkdir(parents=True)
    noted: list[dict[str, object]] = [
        {**row, "Annotator Metadata": {"Steps": NOTE, "Tools": "1. Eyes"}} for row in rows
    ]
    for row in rows:
        if (name := str(row["file_name"])) and not name.startswith(("missing", "/", "..", "metadata")):
            (folder / name).write_bytes(b"content")
    if layout == "jsonl":
        (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in noted))
        return root
    for row in noted:
        name = row["file_name"]
        row |= {"Level": str(row["Level"]), "file_path": f"2023/{part}/{name}" if name else ""}
    for level in ("1", "2", "3"):
        of_level = [row for row in noted if row["Level"] == level]
        if of_level:
            pq.write_table(pa.Table.from_pylist(of_level), folder / f"metadata.level{level}.parquet")
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(noted), folder / "metadata.parquet")
    return root


def read(path: Path, **options: object) -> list[Task | Dropped]:
    return list(gaia(SourceOptions(files=(str(path),), **options)))  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_question_becomes_a_task(layout: str, tmp_path: Path) -> None:
    first, second, third = read(snapshot(tmp_path, layout))
    assert isinstance(first, Task) and isinstance(second, Task) and isinstance(third, Task)
    assert [task.id for task in (first, second, third)] == ["aa-1", "bb-2", "cc-3"]
    assert [task.level for task in (first, second, third)] == ["1", "2", "3"]
    assert [task.answer for task in (first, second, third)] == ["17", "plum", "keep cool"]
    assert (first.data_source, first.kind, first.scorer, first.answer_schema) == (
        "gaia",
        TaskKind.question,
        "gaia",
        "answer",
    )
    assert first.subject == "How many jars are on the shelf?" and first.message.startswith(first.subject)
    assert first.attachments == () and "/attachments" not in first.message
    assert "<answer>" in first.system


@pytest.mark.parametrize(
    ("schema", "reply"),
    [
        ("answer", "So it is <answer>17</answer>"),
        ("boxed", r"So it is \boxed{17}"),
        ("last_line", "So it is\n17"),
    ],
)
def test_the_prompts_ask_for_the_answer_where_its_schema_finds_it(
    schema: str, reply: str, tmp_path: Path
) -> None:
    task = read(snapshot(tmp_path), answer_schema=schema)[0]
    assert isinstance(task, Task) and task.answer_schema == schema
    assert extract(reply, schema) == "17"
    for prompt in (task.system, task.message):
        assert PLACES[schema] in prompt
        assert "{" not in prompt.replace(PLACES[schema], "")


def test_an_answer_schema_that_the_prompts_cannot_ask_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--answer-schema json:a: .*answer, boxed, last_line"):
        read(snapshot(tmp_path), answer_schema="json:a")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_prompt_says_where_tools_find_the_file(layout: str, tmp_path: Path) -> None:
    task = read(snapshot(tmp_path, layout))[1]
    assert isinstance(task, Task) and task.attachments == ("/attachments/bb-2.xlsx",)
    assert "\n/attachments/bb-2.xlsx\n" in task.message


def test_where_files_are_can_be_said(tmp_path: Path) -> None:
    task = read(snapshot(tmp_path), attachments_at=f"{tmp_path}/2023/validation/")[1]
    assert isinstance(task, Task)
    (path,) = task.attachments
    assert path in task.message and Path(path).read_bytes() == b"content"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_level_answer_and_annotators_notes_are_not_shown_to_the_agent(layout: str, tmp_path: Path) -> None:
    rows = [{**ROWS[0], "Level": 1, "Final answer": "zebra-answer"}]
    (task,) = read(snapshot(tmp_path, layout, rows=rows))
    assert isinstance(task, Task)
    shown = task.message + task.system
    assert "zebra-answer" not in shown and NOTE not in shown and "evel" not in shown
    fields = {name: getattr(task, name) for name in Task.__struct_fields__ if name != "answer"}
    assert "zebra-answer" not in str(fields) and NOTE not in str(fields)


@pytest.mark.parametrize("where", [".", "2023", "2023/validation", "2023/validation/metadata.jsonl"])
def test_snapshot_year_part_and_file_may_be_given(where: str, tmp_path: Path) -> None:
    snapshot(tmp_path)
    tasks = read(tmp_path / where)
    assert (
        len(tasks) == 3 and isinstance(tasks[1], Task) and tasks[1].attachments == ("/attachments/bb-2.xlsx",)
    )


def test_a_downloads_links_to_its_cache_are_followed(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "snapshot") / "2023" / "validation"
    (tmp_path / "blobs").mkdir()
    for path in list(folder.iterdir()):
        path.rename(tmp_path / "blobs" / path.name)
        path.symlink_to(Path("../../../blobs") / path.name)
    assert all(isinstance(item, Task) for item in read(tmp_path / "snapshot"))


def test_a_question_is_read_once_where_there_are_both_a_whole_file_and_levels(tmp_path: Path) -> None:
    options = SourceOptions(files=(str(snapshot(tmp_path, "parquet")),))
    assert len(list(gaia(options))) == 3
    assert [path.name for path in options.read] == ["metadata.parquet"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_levels_can_be_chosen_and_the_others_are_counted(layout: str, tmp_path: Path) -> None:
    items = read(snapshot(tmp_path, layout), levels=("1", "3"))
    assert [item.id for item in items if isinstance(item, Task)] == ["aa-1", "cc-3"]
    assert [item.reason for item in items if isinstance(item, Dropped)] == ["level was not asked for"]


def test_levels_that_were_not_asked_for_are_no_fault_in_a_strict_build(tmp_path: Path) -> None:
    rows = [
        {**ROWS[0], "task_id": f"aa-{n}", "Question": f"What is on shelf {n}?", "Level": n % 2 + 1}
        for n in range(20)
    ]
    snapshot(tmp_path, rows=rows)
    report = build("gaia", tmp_path / "out", files=[str(tmp_path)], levels=["2"], strict=True)
    assert sum(report.rows.values()) == 10 and report.dropped == {"level was not asked for": 10}


def test_a_level_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--level 4: GAIA has the levels 1, 2, 3"):
        read(snapshot(tmp_path), levels=("4",))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.pdf", "its file is not in the snapshot"),
        ("../../../secret.txt", "its file is not in the snapshot"),
        ("/etc/hostname", "its file is not in the snapshot"),
        ("metadata.jsonl", "its file is not in the snapshot"),
    ],
)
def test_a_question_whose_file_tools_could_not_read_is_dropped(
    layout: str, name: str, reason: str, tmp_path: Path
) -> None:
    dropped, *others = read(snapshot(tmp_path, layout, rows=[{**ROWS[0], "file_name": name}, *ROWS[1:]]))
    assert isinstance(dropped, Dropped) and dropped.reason == reason
    assert all(isinstance(item, Task) for item in others)


def test_a_file_that_was_not_pulled_is_no_file(tmp_path: Path) -> None:
    root = snapshot(tmp_path)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (root / "2023/validation/bb-2.xlsx").write_text(pointer)
    dropped = read(root)[1]
    assert isinstance(dropped, Dropped) and "git lfs pull" in dropped.reason


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_file_that_is_none_costs_its_question_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    root = snapshot(tmp_path)
    path = root / "2023/validation/bb-2.xlsx"
    path.unlink()
    make(path)
    first, dropped, third = read(root)
    assert isinstance(dropped, Dropped) and dropped.reason == "its file is a folder or a device"
    assert isinstance(first, Task) and isinstance(third, Task)


def test_a_file_named_by_its_path_in_the_snapshot_alone_is_found(tmp_path: Path) -> None:
    folder = snapshot(tmp_path) / "2023" / "validation"
    row = {**ROWS[0], "file_name": None, "file_path": "2023/validation/bb-2.xlsx"}
    pq.write_table(pa.Table.from_pylist([row]), folder / "metadata.parquet")
    (task,) = read(tmp_path)
    assert isinstance(task, Task) and task.attachments == ("/attachments/bb-2.xlsx",)


def test_the_part_whose_answers_are_hidden_is_refused_by_name(tmp_path: Path) -> None:
    snapshot(tmp_path, part="test", rows=[{**ROWS[0], "Final answer": "?"}])
    with pytest.raises(
        UsageError, match=r"answers of its part test.*Use the part validation.*--split train=0\.7,test=0\.3"
    ):
        read(tmp_path, part="test")
    for where in ("2023/test", "2023/test/metadata.jsonl"):
        with pytest.raises(UsageError, match="is that part"):
            read(tmp_path / where)


@pytest.mark.parametrize("hidden", ["?", "", None])
def test_hidden_answers_are_refused_under_any_name(hidden: str | None, tmp_path: Path) -> None:
    rows = [{**row, "Final answer": hidden} for row in ROWS]
    with pytest.raises(DatasetError, match=r"not one question in .* has its answer"):
        read(snapshot(tmp_path, rows=rows))


def test_a_single_hidden_answer_costs_its_question_alone(tmp_path: Path) -> None:
    items = read(snapshot(tmp_path, rows=[{**ROWS[0], "Final answer": "?"}, *ROWS[1:]]))
    assert [getattr(item, "reason", "") for item in items] == ["answer is hidden", "", ""]


def test_an_unknown_part_and_a_folder_without_questions_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--part validaton: GAIA has only the part validation"):
        read(snapshot(tmp_path / "a"), part="validaton")
    (tmp_path / "b").mkdir()
    with pytest.raises(DatasetError, match=r"not a snapshot of GAIA.*hf download gaia-benchmark/GAIA"):
        read(tmp_path / "b")
    with pytest.raises(DatasetError, match="not a snapshot of GAIA"):
        read(tmp_path / "not there")


def test_broken_lines_are_dropped_with_their_line(tmp_path: Path) -> None:
    path = snapshot(tmp_path) / "2023/validation/metadata.jsonl"
    path.write_text("{broken\n\n" + path.read_text())
    items = read(tmp_path)
    assert [(item.line, getattr(item, "reason", "")) for item in items][:3] == [
        (1, "not JSON"),
        (2, "blank line"),
        (3, ""),
    ]


def test_ones_own_system_prompt_takes_the_place_of_the_packages(tmp_path: Path) -> None:
    task = read(snapshot(tmp_path), system="Mine.")[0]
    assert isinstance(task, Task) and task.system == "Mine."


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_dataset_comes_with_the_files_of_its_tasks_and_without_the_answers(
    tmp_path: Path, layout: str
) -> None:
    snapshot_folder, out = snapshot(tmp_path / "gaia", layout), tmp_path / "out"
    (snapshot_folder / "2023" / "validation" / "of-no-question.txt").write_text("x")
    build("gaia", out, files=[snapshot_folder], splits={"train": 1})
    copied = {path.name: path for path in (out / "attachments").iterdir()}
    assert set(copied) == {"bb-2.xlsx", "cc-3.png"}
    assert all(path.read_bytes() == b"content" and path.stat().st_mode & 0o004 for path in copied.values())
    outputs = json.loads((out / "dataset.json").read_text())["outputs"]
    assert {"attachments/bb-2.xlsx", "attachments/cc-3.png", "train.parquet"} <= set(outputs)
    assert find_data(out / "attachments", for_containers=True) == out / "attachments"
    # Nor may they be anywhere below.
    for folder in (snapshot_folder / "2023" / "validation", snapshot_folder, out, tmp_path):
        with pytest.raises(UsageError, match=r"holds the answers.*the folder `attachments`"):
            find_data(folder, for_containers=False)


def test_files_of_tasks_that_are_not_in_the_dataset_are_not_copied(tmp_path: Path) -> None:
    snapshot_folder, out = snapshot(tmp_path / "gaia"), tmp_path / "out"
    build("gaia", out, files=[snapshot_folder], levels=["1", "2"], splits={"train": 1})
    assert [path.name for path in (out / "attachments").iterdir()] == ["bb-2.xlsx"]
    for seed in range(4):
        build("gaia", out, files=[snapshot_folder], seed=seed, splits={"train": 1 / 3})
        paths = [row["extra_info"]["attachments"] for row in pq.read_table(out / "train.parquet").to_pylist()]
        copied = [f"/attachments/{path.name}" for path in (out / "attachments").glob("*")]
        assert copied == [path for row in paths for path in row or ()]


def test_a_dataset_with_attachments_and_pictures_is_replaced_and_nothing_of_ones_own_with_it(
    tmp_path: Path,
) -> None:
    snapshot_folder, out = snapshot(tmp_path / "gaia"), tmp_path / "out"
    build("gaia", out, files=[snapshot_folder], splits={"train": 1})
    (out / "train.stats.png").write_bytes(b"picture")
    build("gaia", out, files=[snapshot_folder], splits={"train": 1})
    (out / "attachments" / "my-notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="attachments/my-notes"):
        build("gaia", out, files=[snapshot_folder], splits={"train": 1})
    assert (out / "attachments" / "my-notes.txt").exists()


def test_different_attachments_of_one_name_are_refused(tmp_path: Path) -> None:
    first, second = snapshot(tmp_path / "a"), snapshot(tmp_path / "b")
    (second / "2023" / "validation" / "bb-2.xlsx").write_bytes(b"another")
    with pytest.raises(DatasetError, match="different attachments of one name"):
        build("gaia", tmp_path / "out", files=[first, second], splits={"train": 1})
    assert not (tmp_path / "out").exists()
