"""The socket at which a worker is reached. If another file has replaced it, which the gateway does not accept
(``serving.channel``), the worker ends, to be started again.
"""

from pathlib import Path


class WorkerSocket:
    def __init__(self, path: str):
        self.path = Path(path)
        self._identity: tuple[int, int] | None = None

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    def remember(self) -> None:
        self._identity = self._look()

    def is_own(self) -> bool:
        return self._identity is not None and self._look() == self._identity

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
