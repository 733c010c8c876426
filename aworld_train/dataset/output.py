"""A dataset directory appears whole or not at all.

Everything is written into a hidden sibling first and then renamed into place. An existing directory is replaced only
if an earlier build wrote all of its files, as recorded in its ``dataset.json``.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aworld_train import atomic
from aworld_train.atomic import sha256_of
from aworld_train.errors import DatasetError, UsageError

MANIFEST = "dataset.json"
MADE_BY = "aworld-train dataset build"
ATTACHMENTS = "attachments"
PICTURE = ".stats.png"
"""Suffix of the picture that `dataset stats` writes beside a file; it is replaced with the dataset."""


def check_replaceable(out: Path) -> None:
    if Path.cwd().is_relative_to(out.resolve()):
        raise UsageError(f"--out {out} is the working directory, or above it; name another directory.")
    try:
        present = _files(out)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"--out {out} is a file; name a directory for the dataset.") from None
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read: {error.strerror}.") from error
    if not present:
        return
    try:
        manifest = json.loads((out / MANIFEST).read_bytes())
        pictures = {f"{name.removesuffix('.parquet')}{PICTURE}" for name in manifest["outputs"]}
        replaceable = {MANIFEST, *manifest["outputs"], *pictures} if manifest["made_by"] == MADE_BY else set()
    except (OSError, ValueError, KeyError, TypeError):
        replaceable = set()
    if not replaceable:
        raise UsageError(
            f"--out {out} holds files that no dataset build wrote; name a new or empty directory."
        )
    if foreign := sorted(set(present) - replaceable):
        raise UsageError(
            f"--out {out} holds an earlier dataset and also {', '.join(foreign)}, which would be lost with "
            "it. Move that away, or name another directory."
        )


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A directory to write into, which takes the place of ``out`` when the block ends without an error."""
    out = out.resolve()
    check_replaceable(out)
    try:
        with atomic.replacing(out, check_replaceable) as folder:
            yield folder
    except OSError as error:
        raise DatasetError(f"The dataset cannot be written to {out}: {error.strerror or error}.") from error


def write_manifest(folder: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """Write ``dataset.json`` beside a finished dataset's files; returns their sha256 by name."""
    outputs = {name: sha256_of(folder / name) for name in _files(folder)}
    text = json.dumps({"made_by": MADE_BY, **content, "outputs": outputs}, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return outputs


def copy_attachments(attachments: Iterable[tuple[str, Path]], folder: Path) -> None:
    """Copy the attachments of tasks, readable for every user: tools in containers run as another one."""
    copied: dict[str, Path] = {}
    for name, path in sorted(attachments):
        try:
            if name in copied and sha256_of(copied[name]) != sha256_of(path):
                raise DatasetError(
                    f"{copied[name]} and {path} are different attachments of one name. Build two datasets of them."
                )
            copied[name] = path
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o644)
        except OSError as error:
            raise DatasetError(
                f"The attachment {path} cannot be copied: {error.strerror or error}."
            ) from error


def _files(folder: Path) -> list[str]:
    names: list[str] = []
    for path in sorted(folder.iterdir()):
        nested = (
            [f"{path.name}/{name}" for name in _files(path)]
            if path.is_dir() and not path.is_symlink()
            else []
        )
        names += nested or [path.name]
    return names
