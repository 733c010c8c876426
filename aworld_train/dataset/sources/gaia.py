"""GAIA as tasks, from a local snapshot of the gated dataset (https://huggingface.co/datasets/gaia-benchmark/GAIA).

The questions of a part are in ``2023/<part>/metadata.jsonl``, or since October 2025 in ``metadata.parquet`` and one
such file per level, with the attachments beside them. These are copied into the dataset's folder ``attachments``, which
is the folder to give to ``env up --data``: the snapshot's own folder has the answers too.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from aworld_train.dataset.prompts.gaia import gaia_prompts
from aworld_train.dataset.sources.columns import ColumnPlan
from aworld_train.dataset.sources.jsonl import json_records
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.parquet import parquet_records
from aworld_train.dataset.sources.records import DEFAULT_SCHEMA, Record, RecordReader
from aworld_train.dataset.sources.values import HIDDEN_ANSWER, NO_ANSWER
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError

PART = "validation"
HIDDEN_PART = "test"
YEAR = "2023"
LEVELS = ("1", "2", "3")
COLUMNS = (
    ("id", "task_id"),
    ("query", "Question"),
    ("answer", "Final answer"),
    ("level", "Level"),
    ("attachments", "file_name"),
    ("path", "file_path"),
)
"""Each field and GAIA's column for it; ``path`` is the file's path in the snapshot, which only parquet files have."""

_LFS_POINTER = b"version https://git-lfs"
_LONGEST_POINTER = 1024
_LFS_FAULT = "its file is a Git LFS pointer: `git lfs pull` gets it"
_REFUSED = (
    "GAIA keeps the answers of its part test to itself, so nothing can be trained or scored with it: {what}. Use the "
    "part validation, and split that for training and measuring: --split train=0.7,test=0.3."
)


def gaia(options: SourceOptions) -> Iterator[Task | Dropped]:
    """One item per question of the part; a question whose file is not in the snapshot is dropped."""
    for level in options.levels:
        if level not in LEVELS:
            raise UsageError(f"--level {level}: GAIA has the levels {', '.join(LEVELS)}.")
    system, compose = gaia_prompts(options.answer_schema or DEFAULT_SCHEMA)
    reader = RecordReader(
        options, "gaia", ability="general assistance", scorer="gaia", system=system, compose=compose
    )
    for name in options.files:
        folder, files = _find_part(Path(name).expanduser(), options.part)
        tasks = hidden = 0
        for path in files:
            options.opened(path)
            read = parquet_records if path.suffix == ".parquet" else json_records
            for item in reader.tasks(_with_files(read(path, _plan), folder), path.name):
                if isinstance(item, Task):
                    tasks += 1
                    for attachment in item.attachments:
                        options.attached(attachment, folder / PurePosixPath(attachment).name)
                else:
                    hidden += item.reason in (HIDDEN_ANSWER, NO_ANSWER)
                yield item
        if hidden and not tasks:
            raise DatasetError(_REFUSED.format(what=f"not one question in {folder} has its answer"))


def _plan(names: tuple[str, ...], where: str) -> ColumnPlan:
    return ColumnPlan(top=tuple((field, column) for field, column in COLUMNS if column in names), nested=())


def _with_files(records: Iterator[Record], folder: Path) -> Iterator[Record]:
    faults = _file_faults(folder)
    prefix = f"{YEAR}/{folder.name}/"
    for line, raw, fields in records:
        if isinstance(fields, str) or not (name := fields.get("attachments") or fields.get("path")):
            yield line, raw, fields
            continue
        # `path` is relative to the top of the snapshot.
        name = str(name).removeprefix(prefix)
        fault = faults.get(name, "its file is not in the snapshot")
        yield line, raw, fault or {**fields, "attachments": name}


def _file_faults(folder: Path) -> dict[str, str]:
    """Why tools cannot read a file of the folder, by its name; empty for files that they can read."""
    faults = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            # These files hold the answers.
            if entry.name.startswith("metadata."):
                continue
            # Downloads can be links into a cache; without the cache they are broken.
            with suppress(FileNotFoundError):
                faults[entry.name] = _file_fault(entry)
    return faults


def _file_fault(entry: "os.DirEntry[str]") -> str:
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode):
        return "its file is a folder or a device"
    if status.st_size > _LONGEST_POINTER:
        return ""
    return _LFS_FAULT if Path(entry.path).read_bytes().startswith(_LFS_POINTER) else ""


def _find_part(path: Path, part: str | None) -> tuple[Path, list[Path]]:
    if part not in (None, PART):
        if part == HIDDEN_PART:
            raise UsageError(_REFUSED.format(what=f"--part {part}"))
        raise UsageError(f"--part {part}: GAIA has only the part {PART}.")
    if path.is_file():
        folder_and_files = path.parent, [path]
    else:
        candidates = (path, path / PART, path / YEAR / PART)
        folder_and_files = next(
            ((folder, files) for folder in candidates if (files := _question_files(folder))), (path, [])
        )
    folder, files = folder_and_files
    if folder.resolve().name == HIDDEN_PART:
        raise UsageError(_REFUSED.format(what=f"{folder} is that part"))
    if not files:
        raise DatasetError(
            f"{path} (--file) is not a snapshot of GAIA: there is no {YEAR}/{PART}/metadata.jsonl or metadata.parquet "
            "in it. The dataset is gated: accept its terms on its page, then "
            "`hf download gaia-benchmark/GAIA --repo-type dataset --local-dir gaia`, and give the folder gaia."
        )
    return folder, files


def _question_files(folder: Path) -> list[Path]:
    for name in ("metadata.parquet", "metadata.jsonl"):
        if (folder / name).is_file():
            return [folder / name]
    return sorted(folder.glob("metadata.level*.parquet"))
