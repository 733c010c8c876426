"""Cached verdicts, one file each, for any number of processes on any file system.

A file is named by the hash of all that determines the verdict (`Question.key`), and repeats it; one that cannot be read
counts as missing. diskcache 5.6.3 was not taken: it unpickles what it reads, so whoever can write to the directory
could run code in the trainer, and its SQLite file cannot be shared over NFS.
"""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from aworld_train.masking import mask
from aworld_train.reward.judge.forms import Verdict
from aworld_train.reward.judge.verdict import JudgedVerdict


class VerdictCache:
    def __init__(self, directory: Path):
        self._directory = directory

    def read(self, key: str) -> JudgedVerdict | None:
        try:
            data = json.loads(self._file(key).read_bytes())
            if data["key"] != key:
                return None
            confidence = data.get("confidence")
            return JudgedVerdict(
                Verdict(data["verdict"]),
                str(data["reason"]),
                None if confidence is None else float(confidence),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, key: str, model: str, judged: JudgedVerdict) -> None:
        file = self._file(key)
        data = {
            "key": key,
            "model": mask(model),
            "verdict": judged.verdict,
            "reason": judged.reason,
            "confidence": judged.confidence,
        }
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            _write(temporary, json.dumps(data))
            temporary.replace(file)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink()
            raise

    def _file(self, key: str) -> Path:
        # Two characters of the key name a directory, so that no directory gets too many entries.
        return self._directory / key[:2] / f"{key}.json"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
