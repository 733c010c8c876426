"""The private folder of one start of VeRL: secrets, Ray's files and temporary files, out of other users' reach.

Ray gives everyone every right to its own folder and to most of what it makes in it, so that folder lies inside this
one, and nothing else lies in Ray's. The path is short: Ray's sockets are below it and may have 107 characters.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

_SECRET_BYTES = 32


@dataclass(frozen=True)
class PrivateFolder:
    """Where one start of VeRL keeps what is nobody else's business.

    Attributes:
        path: The folder, with mode 0700.
    """

    path: Path

    @property
    def ray(self) -> Path:
        """Ray's own folder, which it makes in ``RAY_TMPDIR``."""
        return self.path / "ray"

    @property
    def token(self) -> Path:
        """Who knows its content may use Ray."""
        return self.path / "token"

    @property
    def queue_key(self) -> Path:
        """Who knows its content may use TransferQueue; see ``queue``."""
        return self.path / "queue-key"

    @property
    def rendezvous(self) -> Path:
        """Where the ranks of a process group find each other."""
        return self.path / "rendezvous"

    @property
    def scratch(self) -> Path:
        """For temporary files."""
        return self.path / "tmp"

    def fill(self) -> None:
        """Make what belongs into the folder, with new secrets; the folder itself too if it is not there."""
        for folder in (self.path, self.ray, self.rendezvous, self.scratch):
            folder.mkdir(mode=0o700, exist_ok=True)
        for file in (self.token, self.queue_key):
            _write_secret(file, secrets.token_hex(_SECRET_BYTES))


def _write_secret(file: Path, secret: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(secret)
