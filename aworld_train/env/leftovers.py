"""What killed programs left: temporary folders, and logs of environments that have been down for a week."""

import contextlib
from pathlib import Path

from aworld_train import temporary
from aworld_train.env import registry
from aworld_train.serving.worker.wipe import empty


def clean_leftovers() -> list[Path]:
    """Remove what provably belongs to no living process of this user; returns what is gone."""
    removed = []
    for folder in temporary.abandoned(in_use=registry.is_folder_of_record):
        empty(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()
            removed.append(folder)
    return [*removed, *registry.remove_old_logs()]
