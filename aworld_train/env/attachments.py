"""The files that come with a benchmark's tasks: a folder that the tools of every worker may read and not change.

In containers it is mounted at one fixed path, so that tasks can name their files the same everywhere; processes find it
where it is. Both are told by the variable ``ATTACHMENTS``.
"""

import os
from pathlib import Path

from aworld_train.errors import UsageError

PLACE = "/attachments"
"""Where it is in a container."""
VARIABLE = "ATTACHMENTS"
_OTHERS_READ = 0o004
_OTHERS_ENTER = 0o005


def find_data(folder: Path | None, for_containers: bool) -> Path | None:
    """The folder's absolute path, if all in it can be used.

    Args:
        folder: As given; None where there is none.
        for_containers: Whether it is mounted in containers, whose tools are another user.

    Raises:
        UsageError: There is no such folder, a link in it leads out of it, or tools could not read it.
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
        for path in [Path(name), *(Path(name, one) for one in (*folders, *files))]:
            if path.is_symlink():
                _check_link(path, found)
            elif for_containers:
                _check_mode(path)
    return found


def identity(folder: Path | None) -> list[int | str]:
    """What tells one folder from another, also from one that has been put in its place; files in it may change."""
    return [str(folder), folder.stat().st_dev, folder.stat().st_ino] if folder is not None else []


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


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename} (--data) cannot be read: {error.strerror}.") from error
