"""The log folder of AWorld in this process: it opens its files when it is imported, by default in ``./logs``."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "AWORLD_LOG_PATH"
_SILENT = "AWORLD_DISABLE_CONSOLE_LOG"


def keep_logs_in(folder: Path) -> None:
    """Have AWorld write into ``folder`` and not to the terminal; all episodes of the process write into the first
    one's."""
    os.environ.setdefault(_SILENT, "true")
    os.environ.setdefault(_FOLDER, str(folder))


@contextmanager
def no_logs() -> Iterator[None]:
    """Within this block, importing AWorld leaves no log files; for checking an agent, not for running it."""
    before = {name: os.environ.get(name) for name in (_FOLDER, _SILENT)}
    with tempfile.TemporaryDirectory(prefix="aworld-", ignore_cleanup_errors=True) as folder:
        keep_logs_in(Path(folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
