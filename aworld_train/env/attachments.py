"""The files that come with a benchmark's tasks: a folder that the tools of every worker may read and not change.

In containers it is mounted at one fixed path, so that tasks can name their files the same everywhere; processes find it
where it is. Both are told by the variable ``ATTACHMENTS``.
"""

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from aworld_train.errors import UsageError

PLACE = "/attachments"
"""Where it is in a container."""
VARIABLE = "ATTACHMENTS"
_ANSWERS = {
    "metadata*.jsonl": b"Final answer",
    "metadata*.parquet": b"Final answer",
    "*.parquet": b"ground_truth",
}
"""How the columns of answers are called, by the files that hold them: GAIA's questions, and datasets made of them."""
_LOOKED_AT = 1 << 16  # bytes at either end of a file, where its columns are named
_OTHERS_READ = 0o004
_OTHERS_ENTER = 0o005


def find_data(folder: Path | None, for_containers: bool) -> Path | None:
    """The folder's absolute path, if all in it can be used.

    Args:
        folder: As given; None where there is none.
        for_containers: Whether it is mounted in containers, whose tools are another user.

    Raises:
        UsageError: There is no such folder, a link in it leads out of it, tools could not read it, or they could read
            the answers there.
    """
    if folder is None:
        return None
    found = folder.expanduser().resolve()
    if not found.is_dir():
        kind = "is no folder" if found.exists() else "does not exist"
        raise UsageError(
            f"{found} (--data) {kind}. Give the folder with the files that come with the tasks, downloaded "
            "before; tools can then read them"
            + (f" at {PLACE}." if for_containers else f" there (the variable {VARIABLE}).")
        )
    for name, folders, files in os.walk(found, onerror=_refuse):
        # First of all: what else is wrong with a snapshot's folder is not worth mending.
        for file in files:
            _check_no_answers(Path(name, file))
        for path in [Path(name), *(Path(name, one) for one in (*folders, *files))]:
            if path.is_symlink():
                _check_link(path, found)
            elif for_containers:
                _check_mode(path)
    return found


def identity(folder: Path | None) -> list[int | str]:
    """What tells one folder from another, also from one that has been put in its place; files in it may change."""
    return [str(folder), folder.stat().st_dev, folder.stat().st_ino] if folder is not None else []


def _check_no_answers(file: Path) -> None:
    """GAIA's snapshots have the answers beside the files of its questions, and datasets beside their attachments."""
    columns = {column for name, column in _ANSWERS.items() if fnmatchcase(file.name, name)}
    if not columns or not file.is_file():
        return
    try:
        with file.open("rb") as opened:
            begins = opened.read(_LOOKED_AT)
            opened.seek(max(0, file.stat().st_size - _LOOKED_AT))
            ends = opened.read(_LOOKED_AT)
    except OSError as error:
        _refuse(error)
    if any(column in begins or column in ends for column in columns):
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
    needed = _OTHERS_ENTER if path.is_dir() else _OTHERS_READ
    if path.stat().st_mode & needed != needed:
        raise UsageError(
            f"{path} (--data) is closed to other users, and tools in containers are one: open it with "
            "`chmod -R o+rX`, or use --backend process."
        )


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} (--data) cannot be read: {error.strerror}.") from error
