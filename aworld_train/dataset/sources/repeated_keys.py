"""Finds a key that an object of a JSON line has twice: JSON leaves open which of the two values counts.

A decoded record has lost the pairs whose key comes again. So where a line has as many colons as its record accounts
for, no key comes twice; only other lines, and those that may have an escaped colon, are parsed again with all pairs.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

_COLON = ord(":")
_MIN_NUMPY_BYTES = 4096


class _Pairs(list[tuple[str, Any]]): ...


def count_colons(raw: bytes) -> int:
    if len(raw) < _MIN_NUMPY_BYTES:
        return raw.count(b":")
    return int(np.count_nonzero(np.frombuffer(raw, dtype=np.uint8) == _COLON))


def may_have_escaped_colon(raw: bytes) -> bool:
    return b"\\u003" in raw


def colons_of(value: object) -> int:
    """The colons of a decoded value as it was written, if no key came twice and none was escaped."""
    if value is None or type(value) is int:
        return 0
    if isinstance(value, str):
        return value.count(":")
    if isinstance(value, dict):
        return len(value) + colons_of_all([*value, *value.values()])
    return colons_of_all(value) if isinstance(value, list) else 0


def colons_of_all(values: Sequence[Any]) -> int:
    try:
        return "".join(values).count(":")
    except TypeError:
        return sum(map(colons_of, values))


def repeated_key(raw: bytes, used: Collection[str]) -> str | None:
    """A key that the object of a line has twice, or an object inside one of its columns ``used``; None for none."""
    try:
        record = json.loads(
            raw.decode("utf-8", "surrogateescape"), object_pairs_hook=_Pairs, parse_int=str, parse_float=str
        )
        if not isinstance(record, _Pairs):
            return None
        inside = (value for name, value in record if name in used)
        return next(chain(_twice(name for name, _ in record), _twice_inside(inside)), None)
    except (ValueError, RecursionError):
        return None


def _twice_inside(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, _Pairs):
            yield from _twice(name for name, _ in value)
            yield from _twice_inside(item for _, item in value)
        elif isinstance(value, list):
            yield from _twice_inside(value)


def _twice(names: Iterable[str]) -> Iterator[str]:
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            yield name
        earlier.add(name)
