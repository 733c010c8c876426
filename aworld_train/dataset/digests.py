"""The digest of a task, which decides its order and which tasks are the same: sha256 of the seed and the task's key."""

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aworld_train.dataset.tasks import question_key

DIGEST_BYTES = 32

_ID_CHARS = 16


def digest(key: bytes, seed: int) -> bytes:
    """The value that tasks are ordered by; it is equal for equal tasks only."""
    return hashlib.sha256(b"%d\0%b" % (seed, key)).digest()


def id_from_key(key: bytes) -> str:
    """The id of a task whose record has none: the same in every build, whatever the seed."""
    return hashlib.sha256(key).hexdigest()[:_ID_CHARS]


def question_keys(questions: Sequence[str], array: pa.StringArray) -> list[bytes]:
    """The `question_key` of each question, as UTF-8; ``array`` holds the same without an offset into its buffers."""
    if not questions:
        return []
    _, ends, data = array.buffers()
    bounds = np.frombuffer(ends, dtype=np.int32)[: len(questions) + 1]
    text = np.frombuffer(data, dtype=np.uint8)[: bounds[-1]]
    # Bytes below "A" wrap around to large values, so they do not count as capitals.
    folded = (text | ((text - ord("A") < 26) * np.uint8(ord("a") - ord("A")))).tobytes()
    starts = bounds.tolist()
    keys = [folded[start:end].strip(b" ") for start, end in itertools.pairwise(starts)]
    space = text == ord(" ")
    odd = (text < ord(" ")) | (text > ord("~"))
    odd[1:] |= space[1:] & space[:-1]
    for position in np.unique(np.searchsorted(bounds, np.flatnonzero(odd), side="right") - 1).tolist():
        keys[position] = question_key(questions[position]).encode()
    return keys
