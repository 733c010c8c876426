"""The socket at which a worker is reached, and whether what is at its path still is that socket.

A program that may write to the socket's folder can put a socket of its own there. The gateway does not believe it (see
``aworld_train.serving.channel``), but the worker could not be reached any more: it looks, and ends to be started anew.
"""

from pathlib import Path


class WorkerSocket:
    """A Unix socket that this process listens at.

    Args:
        path: Of the socket; whatever is there before it is bound is removed.
    """

    def __init__(self, path: str):
        self.path = Path(path)
        self._identity: tuple[int, int] | None = None

    def clear(self) -> None:
        """Make room for the socket."""
        self.path.unlink(missing_ok=True)

    def remember(self) -> None:
        """Take what is there now, right after it was bound, for the socket."""
        self._identity = self._look()

    def is_own(self) -> bool:
        """Whether what is there is the socket that was remembered."""
        return self._identity is not None and self._look() == self._identity

    def _look(self) -> tuple[int, int] | None:
        """Device and inode of what is there; None where nothing is."""
        try:
            found = self.path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
