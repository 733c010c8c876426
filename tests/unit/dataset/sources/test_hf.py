"""Hugging Face datasets as a source: folders of `save_to_disk`, and a hub that fails."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.dataset.sources.hf import hf
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DependencyMissing, UsageError
from tests.hub import hub

datasets = pytest.importorskip("datasets")


def read(path: Path, **options: object) -> list[Task | Dropped]:
    return list(hf(SourceOptions(files=(str(path),), **options)))  # type: ignore[arg-type]


def rows(count: int) -> dict[str, list[object]]:
    return {"question": [f"q{n}" for n in range(count)], "answer": [n + 0.5 for n in range(count)]}


def test_a_saved_dataset_is_read_and_its_files_are_told(tmp_path: Path) -> None:
    datasets.Dataset.from_dict(rows(2500)).save_to_disk(tmp_path / "mine")
    options = SourceOptions(files=(str(tmp_path / "mine"),))
    items = list(hf(options))
    assert [item.line for item in items] == list(range(1, 2501))
    assert isinstance(items[-1], Task)
    assert (items[-1].message, items[-1].answer, items[-1].data_source) == ("q2499", "2499.5", "mine")
    assert [path.suffix for path in options.read] == [".arrow"]


def test_rows_that_are_no_tasks_are_dropped(tmp_path: Path) -> None:
    content = {"question": ["q", None], "answer": ["a", "b"]}
    datasets.Dataset.from_dict(content).save_to_disk(tmp_path / "mine")
    task, dropped = read(tmp_path / "mine")
    assert isinstance(task, Task) and isinstance(dropped, Dropped) and dropped.reason == "no query"


def test_chosen_rows_and_lists_of_messages_are_read_as_they_are(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": f"q{n}"}] for n in range(10)]
    dataset = datasets.Dataset.from_dict({"messages": messages, "answer": list(range(10))})
    dataset.select([7, 2]).save_to_disk(tmp_path / "mine")
    assert [(item.message, item.answer) for item in read(tmp_path / "mine") if isinstance(item, Task)] == [
        ("q7", "7"),
        ("q2", "2"),
    ]


def test_of_several_parts_one_is_named(tmp_path: Path) -> None:
    parts = {"train": datasets.Dataset.from_dict(rows(3)), "test": datasets.Dataset.from_dict(rows(2))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "mine")
    assert len(read(tmp_path / "mine", part="test")) == 2
    with pytest.raises(UsageError, match=r"has the parts train, test\. Say which: --part train"):
        read(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"--part tset: .* Did you mean 'test'"):
        read(tmp_path / "mine", part="tset")


def test_a_folder_that_was_not_saved_and_a_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match="not a folder that `save_to_disk` wrote"):
        read(tmp_path)
    with pytest.raises(UsageError, match="Single files are for the sources jsonl, csv and parquet"):
        read(tmp_path / "a.parquet")


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How Python itself marks a module that cannot be had.
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DependencyMissing, match=r"pip install datasets.*'aworld-train\[cpu\]'"):
        read(tmp_path)


def test_no_source_loads_a_heavy_library_before_it_is_used() -> None:
    code = (
        "import sys\n"
        "from aworld_train.dataset.sources import SOURCES, find_source\n"
        "for name in SOURCES: find_source(name)\n"
        "heavy = {'datasets', 'huggingface_hub', 'pandas', 'torch', 'transformers', 'ray', 'verl', 'sympy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


SCRIPT = """
import sys
from aworld_train.errors import AworldTrainError
from aworld_train.dataset.sources.hf import hf
from aworld_train.dataset.sources.options import SourceOptions
try:
    for item in hf(SourceOptions(files=("someone/tasks",), part=sys.argv[1] if sys.argv[1:] else None)):
        print(item)
except AworldTrainError as error:
    print(error.kind, error.message)
"""


def from_hub(home: Path, *arguments: str, **variables: str) -> str:
    """What comes of a hub's dataset, in a process of its own: the library reads its settings when it is loaded."""
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**surroundings, "HF_HOME": str(home), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_hub_that_cannot_be_reached_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        message = from_hub(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert message.startswith(
        "dataset someone/tasks (--file) is not a folder here, and cannot be had from the hub: "
    )
    assert "`save_to_disk` it there, and give the folder" in message


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        message = from_hub(tmp_path, HF_ENDPOINT=endpoint, HF_HUB_ETAG_TIMEOUT="1")
    assert "cannot be had from the hub" in message and "timed out" in message


def test_offline_a_dataset_that_was_never_downloaded_is_an_error(tmp_path: Path) -> None:
    message = from_hub(tmp_path, HF_HUB_OFFLINE="1")
    assert "cannot be had from the hub" in message and "HF_HUB_OFFLINE=1" in message


ANSWERS = {"train.jsonl": ["72", "1.5"], "test.jsonl": ["7"]}
FILES = {
    name: "".join(
        f'{{"question": "q{n}", "answer": {answer}}}\n' for n, answer in enumerate(answers)
    ).encode()
    for name, answers in ANSWERS.items()
}


def test_a_hubs_dataset_is_streamed(tmp_path: Path) -> None:
    with hub(FILES) as endpoint:
        message = from_hub(tmp_path, "train", HF_ENDPOINT=endpoint)
    lines = message.splitlines()
    assert len(lines) == 2 and all(line.startswith("Task(data_source='tasks'") for line in lines)
    assert "message='q0', answer='72'" in lines[0] and "message='q1', answer='1.5'" in lines[1]


def test_a_hubs_dataset_of_several_parts_needs_one_named(tmp_path: Path) -> None:
    with hub(FILES) as endpoint:
        message = from_hub(tmp_path, HF_ENDPOINT=endpoint)
    assert message.startswith("usage someone/tasks has the parts ") and "--part" in message
