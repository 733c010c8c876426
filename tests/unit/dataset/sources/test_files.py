"""Made files: the same bytes for the same seed, documents of one task each, and answers that no trivial guess has."""

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build
from aworld_train.dataset.made_files import kinds
from aworld_train.dataset.made_files.drafts import TAGS
from aworld_train.dataset.sources.files import files
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Task
from aworld_train.errors import DatasetError, UsageError
from aworld_train.reward.gaia import gaia

MAX_GUESSED = 0.05


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "data"
    build("files", folder, limit=120, seed=3)
    return folder


def test_the_same_seed_gives_the_same_bytes(dataset: Path, tmp_path: Path) -> None:
    build("files", tmp_path / "again", limit=120, seed=3)
    first, again = contents(dataset), contents(tmp_path / "again")
    assert first.keys() == again.keys()
    assert [name for name in first if first[name] != again[name]] == []


def test_a_task_is_the_same_whatever_else_is_asked_for(dataset: Path) -> None:
    (task,) = files(SourceOptions(seed=3, limit=1, levels=("2",)))
    assert isinstance(task, Task)
    written = [row for split in ("train", "val") for row in rows(dataset / f"{split}.parquet")]
    (row,) = [row for row in written if row["extra_info"]["id"] == task.id]
    assert (row["extra_info"]["question"], row["extra_info"]["tags"]) == (task.subject, list(task.tags))


def test_every_attachment_is_of_one_task_and_holds_its_answer(dataset: Path) -> None:
    owners: dict[str, str] = {}
    for split in ("train", "val"):
        for row in rows(dataset / f"{split}.parquet"):
            info = row["extra_info"]
            names = [path.removeprefix("/attachments/") for path in info["attachments"]]
            assert not owners.keys() & set(names)
            owners |= dict.fromkeys(names, info["id"])
            assert any(info["file"] == name or info["file"].startswith(f"{name}/") for name in names)
            # What is asked about is named in the message, or is in a folder that is.
            message = row["prompt"][-1]["content"]
            assert all(path in message or path.rpartition("/")[0] in message for path in info["attachments"])
    written = {
        str(path.relative_to(dataset / "attachments")) for path in (dataset / "attachments").rglob("*.*")
    }
    assert written == owners.keys()
    assert len(set(map(Path.read_bytes, (dataset / "attachments").rglob("*.*")))) == len(written)


def test_all_levels_kinds_and_questions_come_up() -> None:
    tasks = made(SourceOptions(limit=300))
    assert Counter(task.level for task in tasks) == {"1": 100, "2": 100, "3": 100}
    expected = {tag for sort in TAGS for tag in sort} | {"spoken"}
    if not shutil.which("flite"):
        expected -= {"wav", "spoken", "recording"}
    assert {tag for task in tasks for tag in task.tags} == expected
    assert sum(bool(re.fullmatch(r"[\d.]+ \w+", task.answer)) for task in tasks) > 60
    assert sum(", " in task.answer for task in tasks) > 60


def test_lists_have_as_many_rows_as_are_asked_for_at_most(tmp_path: Path) -> None:
    for max_rows, expected in ((None, range(4, 25)), (6, range(4, 7)), (4, range(4, 5))):
        folder = tmp_path / str(max_rows)
        options = SourceOptions(limit=100, levels=("1",), tags=("csv",), max_rows=max_rows, workspace=folder)
        assert len(made(options)) == 100
        assert {path.read_text().count("\n") - 1 for path in folder.rglob("*.csv")} == set(expected)
    with pytest.raises(UsageError, match="--max-rows 3: lists have 4 rows at least"):
        made(SourceOptions(max_rows=3))


def made(options: SourceOptions) -> list[Task]:
    return [task for task in files(options) if isinstance(task, Task)]


def right(answers: list[str], tasks: list[Task]) -> float:
    scores = [gaia(answer, task.answer).value or 0.0 for answer, task in zip(answers, tasks, strict=True)]
    return sum(scores) / len(scores)


def form(task: Task) -> str:
    """A question without what is different in every one."""
    return re.sub(r"/\S+|[\d.]+|(?<!^)\b[A-Z]\w+", "", task.subject)


def constant(train: list[Task]) -> Callable[[Task], str]:
    best = Counter(task.answer for task in train).most_common(1)[0][0]
    return lambda task: best


def question_only(train: list[Task]) -> Callable[[Task], str]:
    """The most frequent answer to questions of the same form; names in the question are answers too."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for task in train:
        answers[form(task)][task.answer] += 1
    best = constant(train)
    return lambda task: answers[form(task)].most_common(1)[0][0] if form(task) in answers else best(task)


@pytest.mark.parametrize("baseline", [constant, question_only])
def test_trivial_baselines_are_nearly_always_wrong(
    baseline: Callable[[list[Task]], Callable[[Task], str]],
) -> None:
    # Without pictures and recordings, which take long to make and hold the same tables.
    slow = ("png", "jpg", "picture", "wav", "recording")
    tags = tuple(tag for sort in TAGS for tag in sort if tag not in slow)
    train, val = (made(SourceOptions(limit=600, seed=seed, tags=tags)) for seed in (0, 1))
    guess = baseline(train)
    assert right([guess(task) for task in val], val) < MAX_GUESSED
    assert right([task.answer for task in val], val) == 1.0


def test_what_this_machine_cannot_make_is_dropped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds.shutil, "which", lambda name: None)
    report = build("files", tmp_path / "data", limit=90)
    (reason,) = report.dropped
    assert reason.startswith("flite, which speaks, is not installed")
    assert sum(report.rows.values()) == 90
    with pytest.raises(DatasetError, match="flite"):
        build("files", tmp_path / "wav", levels=["1"], tags=("wav",))


def test_only_the_tags_asked_for_are_made() -> None:
    tasks = made(SourceOptions(limit=20, levels=("1",), tags=("csv", "docx", "value")))
    assert {task.tags for task in tasks} == {("csv", "value"), ("docx", "value")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SourceOptions(tags=("cvs",)), "Did you mean 'csv'"),
        (SourceOptions(levels=("4",)), "--level 4: there are 1, 2, 3"),
        (SourceOptions(levels=("2",), tags=("png",)), "need one of csv, tsv"),
        (SourceOptions(answer_schema="whole"), "GAIA's prompts"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: SourceOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(files(options))
