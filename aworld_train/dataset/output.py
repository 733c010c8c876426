"""A dataset directory appears whole or not at all.

Everything is written into a hidden sibling first and then renamed into place. A directory that is already
there is replaced only if all of it was written by an earlier build, which its ``dataset.json`` tells.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aworld_train import atomic
from aworld_train.errors import DatasetError

MANIFEST = "dataset.json"
MADE_BY = "aworld-train dataset build"
ATTACHMENTS = "attachments"
PICTURE = ".stats.png"
"""What `dataset stats` writes beside a file; it goes with the dataset."""


def check_replaceable(out: Path) -> None:
    """See that ``out`` is not there, is empty, or holds an earlier dataset and nothing else.

    Raises:
        DatasetError: Something else is there; the message says what.
    """
    if Path.cwd().is_relative_to(out.resolve()):
        raise DatasetError(f"--out {out} is the working directory, or above it; name another directory.")
    try:
        present = _files(out)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise DatasetError(f"--out {out} is a file; name a directory for the dataset.") from None
    except OSError as error:
        raise DatasetError(f"--out {out} cannot be read: {error.strerror}.") from error
    if not present:
        return
    try:
        manifest = json.loads((out / MANIFEST).read_bytes())
        pictures = {f"{name.removesuffix('.parquet')}{PICTURE}" for name in manifest["outputs"]}
        ours = {MANIFEST, *manifest["outputs"], *pictures} if manifest["made_by"] == MADE_BY else set()
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if not ours:
        raise DatasetError(
            f"--out {out} holds files that are no dataset of ours; name a new or empty directory."
        )
    if foreign := sorted(set(present) - ours):
        raise DatasetError(
            f"--out {out} holds an earlier dataset and also {', '.join(foreign)}, which would be lost with "
            "it. Move that away, or name another directory."
        )


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A directory to write into, which takes the place of ``out`` when the block ends without an error.

    Raises:
        DatasetError: ``out`` cannot be replaced or written.
    """
    out = out.resolve()
    check_replaceable(out)
    try:
        with atomic.replacing(out, check_replaceable) as folder:
            yield folder
    except OSError as error:
        raise DatasetError(f"The dataset cannot be written to {out}: {error.strerror or error}.") from error


def write_manifest(folder: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """Write ``dataset.json`` beside the files of a finished dataset; returns their sha256 by name."""
    outputs = {name: sha256(folder / name) for name in _files(folder)}
    text = json.dumps({"made_by": MADE_BY, **content, "outputs": outputs}, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return outputs


def copy_attachments(attachments: Iterable[tuple[str, Path]], folder: Path) -> None:
    """Copy the files that tasks come with, for any user to read: tools in containers are another one.

    Args:
        attachments: The name that tasks have for a file, and where it is.
        folder: Where to; it is made if there is any.

    Raises:
        DatasetError: There are different files of one name, or one cannot be read.
    """
    taken: dict[str, Path] = {}
    for name, path in sorted(attachments):
        try:
            if name in taken and sha256(taken[name]) != sha256(path):
                raise DatasetError(
                    f"{taken[name]} and {path} are different attachments of one name. Build two datasets of them."
                )
            taken[name] = path
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o644)
        except OSError as error:
            raise DatasetError(
                f"The attachment {path} cannot be copied: {error.strerror or error}."
            ) from error


def _files(folder: Path) -> list[str]:
    """All files by their paths in the folder; a folder without any, or with a link, by its own."""
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        inside = (
            [f"{path.name}/{name}" for name in _files(path)]
            if path.is_dir() and not path.is_symlink()
            else []
        )
        found += inside or [path.name]
    return found


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
