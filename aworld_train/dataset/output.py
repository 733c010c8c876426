"""A dataset directory appears whole or not at all.

Everything is written into a hidden sibling first and then renamed into place. A directory that is already
there is replaced only if all of it was written by an earlier build, which its ``dataset.json`` tells.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aworld_train import atomic
from aworld_train.errors import DatasetError

MANIFEST = "dataset.json"
MADE_BY = "aworld-train dataset build"


def check_replaceable(out: Path) -> None:
    """See that ``out`` is not there, is empty, or holds an earlier dataset and nothing else.

    Raises:
        DatasetError: Something else is there; the message says what.
    """
    try:
        present = {path.name for path in out.iterdir()}
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
        ours = {MANIFEST, *manifest["outputs"]} if manifest["made_by"] == MADE_BY else set()
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if not ours:
        raise DatasetError(
            f"--out {out} holds files that are no dataset of ours; name a new or empty directory."
        )
    if foreign := sorted(present - ours):
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
    outputs = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    text = json.dumps({"made_by": MADE_BY, **content, "outputs": outputs}, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return outputs


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
