"""The tokens that were revoked, stored in files that a restarted gateway reads.

The files are beside the workers' sockets: in containers those are volumes in memory, which no tool can open and which
exist as long as the gateway or a worker runs.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aworld_train.serving.tokens import Revocation


class Revocations:
    """The revoked tokens: each is written to all ``files``, and one in any of them is revoked."""

    def __init__(self, files: Sequence[Path]):
        self._files = files
        self._expires: dict[str, float | None] = {}
        for file in files:
            try:
                self._expires |= json.loads(file.read_text())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError) as error:
                sys.stderr.write(f"The revoked tokens in {file} cannot be read: {type(error).__name__}\n")

    def __contains__(self, token_id: str) -> bool:
        return token_id in self._expires

    def add(self, revocation: Revocation) -> bool:
        """Revoke a token; returns whether that could be stored."""
        now = time.time()
        self._expires[revocation.token_id] = revocation.expires
        self._expires = {
            token_id: expires
            for token_id, expires in self._expires.items()
            if expires is None or expires > now
        }
        text = json.dumps(self._expires)
        return sum(_write(file, text) for file in self._files) > 0


def _write(file: Path, text: str) -> bool:
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(text)
        new.replace(file)
    except OSError:
        return False
    return True
