"""The tiny model, which solves about half of its tasks: it comes with the package and is copied to where it is wanted.

It was made by ``scripts/tiny_model.py``. ``tiny.json`` marks its directory and has what was measured: a copy appears
whole or not at all, and never in place of anything but a tiny model.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aworld_train import atomic
from aworld_train.errors import ModelError, UsageError

SHIPPED = Path(__file__).parent / "shipped"
MARKER = "tiny.json"
MADE_BY = "aworld-train model tiny"


@dataclass(frozen=True)
class TinyReport:
    """A tiny model and what was measured on it, greedily or, in ``sampled_*`` and ``mixed_groups``, at temperature 1.

    The tokens are those of the episode of ``What is 48/2?`` with one tool call. ``reused`` says that it was there.
    """

    out: Path
    seed: int
    accuracy: float
    tool_use: float
    mixed_groups: float
    sampled_accuracy: float
    sampled_tool_use: float
    val_tasks: int
    parameters: int
    vocab_size: int
    prompt_tokens: int
    episode_tokens: int
    reused: bool

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "out": str(self.out)}


def copy(out: Path) -> TinyReport:
    """Put the tiny model at ``out``, a directory that loads like any Hugging Face model, without a download."""
    atomic.check_writable(out.parent, "the model (--out)")
    marker = read_marker(SHIPPED)
    reused = read_marker(out) == marker and {file.name for file in SHIPPED.iterdir()} <= {
        file.name for file in out.iterdir()
    }
    if not reused:
        try:
            with atomic.replacing(out.resolve(), read_marker) as folder:
                shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
        except OSError as error:
            raise ModelError(f"The model cannot be written to {out}: {error.strerror or error}.") from error
    assert marker is not None
    return TinyReport(out=out, reused=reused, **marker["report"])


def read_marker(out: Path) -> dict[str, Any] | None:
    """The content of ``tiny.json`` of an existing tiny model; None for a missing or empty directory."""
    try:
        is_empty = next(out.iterdir(), None) is None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"--out {out} cannot be used as a directory: {error.strerror}.") from error
    if is_empty:
        return None
    try:
        marker: dict[str, Any] = json.loads((out / MARKER).read_bytes())
        is_tiny_model = isinstance(marker, dict) and marker.get("made_by") == MADE_BY
    except (OSError, ValueError):
        is_tiny_model = False
    if not is_tiny_model:
        raise UsageError(f"--out {out} holds files other than a tiny model; name a new directory.")
    return marker
