"""The tokens that were revoked, remembered where a gateway that is started again finds them.

They are written beside the sockets of the workers: in containers those folders are volumes in memory, which no tool can
open and which last as long as the gateway or the worker runs. A token that has expired is forgotten.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aworld_train.serving.tokens import Revocation


class Revocations:
    """The revoked tokens.

    Args:
        files: Where they are written down, each time in all of them; what any of them has counts.
    """

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
        """From now on the token is revoked; whether that could be written down."""
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
    """Replace the file as a whole; whether that was possible."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(text)
        new.replace(file)
    except OSError:
        return False
    return True
