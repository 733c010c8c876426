"""Verdicts that were given before, a file each, for any number of processes on any file system.

A file is named by the hash of all that makes the verdict (`Question.key`), is written beside and moved into place, and
says its own key again. One that cannot be read, is cut off or says another key counts as none and is replaced by the
next verdict. Files are not forced to disk: what a power cut damages is asked anew.
"""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from aworld_train.masking import mask
from aworld_train.reward.judge.verdict import JudgedVerdict, Verdict


class VerdictCache:
    """Verdicts in a directory, which is made when the first one is kept."""

    def __init__(self, directory: Path):
        self._directory = directory

    def read(self, key: str) -> JudgedVerdict | None:
        """The verdict under a key, or None."""
        try:
            data = json.loads(self._file(key).read_bytes())
            if data["key"] != key:
                return None
            return JudgedVerdict(Verdict(data["verdict"]), str(data["reason"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, key: str, model: str, ruling: JudgedVerdict) -> None:
        """Keep a verdict.

        Raises:
            OSError: It cannot be written.
        """
        file = self._file(key)
        data = {"key": key, "model": mask(model), "verdict": ruling.verdict, "reason": ruling.reason}
        beside = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            _write(beside, json.dumps(data))
            beside.replace(file)
        except OSError:
            with suppress(OSError):  # what went wrong first is what counts
                beside.unlink()
            raise

    def _file(self, key: str) -> Path:
        # Two characters of the key are a directory, so that none gets too long to look through.
        return self._directory / key[:2] / f"{key}.json"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
