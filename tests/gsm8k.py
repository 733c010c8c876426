"""GSM8K's own files, which the repository does not have: where a machine has them, and the mark of their tests."""

import json
import os
from pathlib import Path

import pytest

from tests.locations import REPOSITORY

GSM8K = Path(os.environ.get("AWORLD_TRAIN_GSM8K") or REPOSITORY.parent / "shared" / "data" / "gsm8k")
FILES = ("train.jsonl", "test.jsonl")
ABSENT = not all((GSM8K / name).is_file() for name in FILES)
REASON = "GSM8K is not here: set AWORLD_TRAIN_GSM8K to the folder of its train.jsonl and test.jsonl"
needs_gsm8k = pytest.mark.skipif(ABSENT, reason=REASON)


def questions(name: str) -> list[str]:
    """The questions of one of the files."""
    return [json.loads(line)["question"] for line in (GSM8K / name).read_text("utf-8").splitlines()]
