"""Arrow arrays from Python and numpy values and back, by way of their buffers.

``pyarrow.array``, ``pyarrow.scalar`` and ``Array.to_numpy`` import pandas to check for its types, which takes more time
and memory than building a small dataset. These functions do not, and are also faster for texts.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.errors import DatasetError

Numbers = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

TEXT_LIST = pa.list_(pa.field("element", pa.string()))

MAX_BYTES = 2**31 - 1
"""The largest value of arrow's 32-bit offsets."""

_READ_BUFFER_BYTES = 1 << 20


def texts(values: Sequence[str], *, empty_is_null: bool = False) -> pa.Array:
    joined = "".join(values)
    if joined.isascii():
        data = joined.encode()
        lengths = np.fromiter(map(len, values), np.int64, len(values))
    else:
        encoded = [value.encode() for value in values]
        data = b"".join(encoded)
        lengths = np.fromiter(map(len, encoded), np.int64, len(values))
    valid = _bits(lengths > 0) if empty_is_null else None
    return pa.StringArray.from_buffers(len(values), offsets(lengths), pa.py_buffer(data), valid)


def text(value: str | None) -> pa.Scalar:
    return texts([value or ""], empty_is_null=value is None)[0]


def lists_of_texts(values: Sequence[Sequence[str]]) -> pa.Array:
    """An array of lists of texts, null where a list is empty."""
    if not any(values):
        return pa.nulls(len(values), TEXT_LIST)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    inner = texts(list(chain.from_iterable(values)))
    buffers = [_bits(lengths > 0), offsets(lengths)]
    return pa.Array.from_buffers(TEXT_LIST, len(values), buffers, children=[inner])


def numbers(values: "np.ndarray[Any, Any] | Sequence[int]", kind: pa.DataType | None = None) -> pa.Array:
    kind = kind or pa.int64()
    flat = np.ascontiguousarray(values, dtype=kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])


def truths(values: Mask) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def as_integers(array: pa.Array) -> Numbers:
    """The values of an array of integers that has no nulls, without a copy."""
    values = np.frombuffer(array.buffers()[1] or b"", dtype=array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def as_truths(array: pa.Array) -> Mask:
    """The values of an array of truth values; null counts as false."""
    end = array.offset + len(array)
    valid, values = (
        None if bits is None else np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")
        for bits in array.buffers()
    )
    if values is None:
        return np.zeros(len(array), dtype=bool)
    true_bits = values if valid is None else values & valid
    return true_bits[array.offset :].astype(bool)


def binaries(values: Sequence[bytes], width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(b"".join(values))]
    )


def offsets(lengths: Numbers) -> pa.Buffer:
    """Where values of these lengths begin and end in one buffer, [values + 1]."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    if ends[-1] > MAX_BYTES:
        raise DatasetError(
            f"{len(lengths)} tasks in a row have {int(ends[-1]) >> 20} MiB of text, more than can be held at once. "
            "No model reads questions of that length; shorten them."
        )
    return pa.py_buffer(ends.astype(np.int32))


def open_streamed(path: Path) -> pq.ParquetFile:
    """A parquet file of which a megabyte of each column is in memory; by default arrow keeps all that it has read."""
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BUFFER_BYTES)


def _bits(values: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
