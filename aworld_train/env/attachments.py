"""The files that come with a benchmark's tasks: a folder that the tools of every worker may read and not change.

Containers have it at one fixed path, processes where it is; the variable ``ATTACHMENTS`` holds its path.
"""

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from aworld_train.errors import UsageError

MOUNT_POINT = "/attachments"
VARIABLE = "ATTACHMENTS"
_ANSWER_COLUMNS = {
    "metadata*.jsonl": b"Final answer",
    "metadata*.parquet": b"Final answer",
    "*.parquet": b"ground_truth",
}
"""Names of answer columns, by the files that have them: GAIA's questions, and datasets made from these."""
_SAMPLE_BYTES = 1 << 16  # read at either end of a file, where its columns are named
_OTHERS_READ = 0o004
_OTHERS_ENTER = 0o005


def find_data(folder: Path | None, for_containers: bool) -> Path | None:
    """The folder's absolute path, if all in it can be used; tools in containers run as another user."""
    if folder is None:
        return None
    root = folder.expanduser().resolve()
    if not root.is_dir():
        kind = "is not a folder" if root.exists() else "does not exist"
        raise UsageError(
            f"{root} (--data) {kind}. Give the folder with the files that come with the tasks, downloaded "
            "before; tools can then read them"
            + (f" at {MOUNT_POINT}." if for_containers else f" there (the variable {VARIABLE}).")
        )
    for name, folders, files in os.walk(root, onerror=_refuse):
        # Checked first: a folder with answers is the wrong one, and its other faults need no mending.
        for file in files:
            _check_no_answers(Path(name, file))
        for path in [Path(name), *(Path(name, one) for one in (*folders, *files))]:
            if path.is_symlink():
                _check_link(path, root)
            elif for_containers:
                _check_mode(path)
    return root


def identity(folder: Path | None) -> list[int | str]:
    """Values that differ between two folders, even if one has replaced the other at its path; files may change."""
    return [str(folder), folder.stat().st_dev, folder.stat().st_ino] if folder is not None else []


def _check_no_answers(file: Path) -> None:
    """Refuse files with answers: GAIA's snapshots and datasets have them in the same folder as the attachments."""
    columns = {column for name, column in _ANSWER_COLUMNS.items() if fnmatchcase(file.name, name)}
    if not columns or not file.is_file():
        return
    try:
        with file.open("rb") as stream:
            head = stream.read(_SAMPLE_BYTES)
            stream.seek(max(0, file.stat().st_size - _SAMPLE_BYTES))
            tail = stream.read(_SAMPLE_BYTES)
    except OSError as error:
        _refuse(error)
    if any(column in head or column in tail for column in columns):
        raise UsageError(
            f"{file} (--data) holds the answers of the tasks, and tools could read them. Give the folder "
            "`attachments` of the dataset that `aworld-train dataset build gaia` makes: it has the tasks' files alone."
        )


def _check_link(link: Path, folder: Path) -> None:
    target = link.readlink()
    if target.is_absolute() or not link.resolve().is_relative_to(folder):
        raise UsageError(
            f"{link} (--data) is a link to {target}, which tools could not follow: they see this folder alone. "
            f"Give a copy without links (`cp -rL {folder} COPY`)."
        )


def _check_mode(path: Path) -> None:
    required = _OTHERS_ENTER if path.is_dir() else _OTHERS_READ
    if path.stat().st_mode & required != required:
        raise UsageError(
            f"{path} (--data) is closed to other users, and tools in containers run as another user: open it with "
            "`chmod -R o+rX`, or use --backend process."
        )


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} (--data) cannot be read: {error.strerror}.") from error
