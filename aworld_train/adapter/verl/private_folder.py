"""The private folder of one start of VeRL: secrets, Ray's files and temporary files, which other users cannot reach.

Ray gives all users full access to its own folder, which lies inside. The path is short, because the paths of Ray's
sockets below it may have at most 107 characters.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

SECRET_BYTES = 32


class PrivateFolder:
    def __init__(self, path: Path):
        self.path = path
        self.ray = path / "ray"  # which Ray makes in RAY_TMPDIR
        self.token, self.queue_key = path / "token", path / "queue-key"
        self.fork_server = path / "forks"
        self.rendezvous, self.scratch = path / "rendezvous", path / "tmp"

    def fill(self) -> None:
        """Make the folder if it does not exist, its subfolders, and new secrets."""
        self.receive({file.name: secrets.token_hex(SECRET_BYTES) for file in (self.token, self.queue_key)})

    def secrets(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in (self.token, self.queue_key)}

    def receive(self, values: Mapping[str, str]) -> None:
        """As ``fill``, with the secrets of the folder on another machine (``secrets``)."""
        for folder in (self.path, self.ray, self.rendezvous, self.scratch):
            folder.mkdir(mode=0o700, exist_ok=True)
        for file in (self.token, self.queue_key):
            _write_secret(file, values[file.name])


def _write_secret(file: Path, secret: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(secret)
