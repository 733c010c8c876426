"""A tiny model's directory appears whole or not at all, and never in place of anything but a tiny model.

``tiny.json`` marks the directory as a tiny model's, and records how the model was made and what was measured.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aworld_train import atomic
from aworld_train.errors import ModelError, UsageError

MARKER = "tiny.json"
MADE_BY = "aworld-train model tiny"
_PARTS = ("config.json", "model.safetensors", "tokenizer.json")


def read_marker(out: Path) -> dict[str, Any] | None:
    """The content of ``tiny.json`` of an existing tiny model; None for a missing or empty directory."""
    try:
        present = {path.name for path in out.iterdir()}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"--out {out} cannot be used as a directory: {error.strerror}.") from error
    if not present:
        return None
    try:
        marker = json.loads((out / MARKER).read_bytes())
        is_tiny_model = isinstance(marker, dict) and marker.get("made_by") == MADE_BY
    except (OSError, ValueError):
        is_tiny_model = False
    if not is_tiny_model:
        raise UsageError(f"--out {out} holds files other than a tiny model; name a new directory.")
    return {**marker, "complete": present.issuperset(_PARTS)}


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A directory to write into, which takes the place of ``out`` when the block ends without an error."""
    out = out.resolve()
    try:
        with atomic.replacing(out, read_marker) as folder:
            yield folder
    except OSError as error:
        raise ModelError(f"The model cannot be written to {out}: {error.strerror or error}.") from error


def write_marker(folder: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps({"made_by": MADE_BY, **content}, indent=2)
    (folder / MARKER).write_text(text + "\n", encoding="utf-8")


def digest(paths: Iterable[Path], *texts: str) -> str:
    total = hashlib.sha256()
    for part in (*(path.read_bytes() for path in paths), *(text.encode() for text in texts)):
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()
