"""Where agent frameworks that run in this process write, settled before they are imported for the first time.

AWorld opens its log files when it is imported, in ``./logs`` unless told otherwise, and prints to stderr.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "AWORLD_LOG_PATH"
_SILENT = "AWORLD_DISABLE_CONSOLE_LOG"


def keep_logs_in(folder: Path) -> None:
    """Have AWorld write into ``folder`` and not to the terminal; what the user set already stays.

    Log files belong to the process, so those of all its episodes go where the first one says.
    """
    os.environ.setdefault(_SILENT, "true")
    os.environ.setdefault(_FOLDER, str(folder))


@contextmanager
def no_logs() -> Iterator[None]:
    """AWorld may be imported in here and leaves nothing behind; for looking at an agent, not for running it."""
    before = {name: os.environ.get(name) for name in (_FOLDER, _SILENT)}
    with tempfile.TemporaryDirectory(prefix="aworld-", ignore_cleanup_errors=True) as folder:
        keep_logs_in(Path(folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
