"""The values of arrow columns as tasks have them: floats as they were written, times in ISO 8601, labels by name."""

import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from aworld_train.dataset.sources.features import label_decoder
from aworld_train.dataset.sources.values import without_padding

_NO_TEXT = b"\xff"
"""Stands for a text that is not UTF-8."""

_TIME = re.compile(r"(?:(-?\d{4,}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:?\d\d)?")


def column_values(column: pa.Array, feature: object = None) -> list[object]:
    """The values of a column.

    Args:
        column: A column of any type.
        feature: Its description where it is of a Hugging Face dataset.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    times = _has(kind, _is_time)
    if times or _has(kind, _is_short_float):
        # By way of text, a float of 32 bits stays 0.1 and does not become 0.10000000149011612, and a time keeps its
        # zone and its nanoseconds.
        as_text = _replaced(
            kind, lambda leaf: pa.string() if _is_time(leaf) or _is_short_float(leaf) else leaf
        )
        with_floats = _replaced(
            kind,
            lambda leaf: pa.string() if _is_time(leaf) else pa.float64() if _is_short_float(leaf) else leaf,
        )
        column = column.cast(as_text).cast(with_floats)
    values = _as_python(column)
    if times:
        values = [_with_times(value, kind) for value in values]
    decode = label_decoder(feature)
    return values if decode is None else [decode(value) for value in values]


def _as_python(column: pa.Array) -> list[object]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _NO_TEXT


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def _is_short_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float16(kind) or pa.types.is_float32(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if _is_list(kind):
        yield from _leaves(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type)
    else:
        yield kind


def _has(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    return any(map(is_kind, _leaves(kind)))


def _replaced(kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with other types at its leaves."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replaced(field.type, replace)) for field in kind])
    if not _is_list(kind):
        return replace(kind)
    item = kind.value_field.with_type(_replaced(kind.value_type, replace))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)


def _with_times(value: object, kind: pa.DataType) -> object:
    """The value with its times, of these places in the type, in ISO 8601."""
    if isinstance(value, list):
        return [_with_times(item, kind.value_type) for item in value]
    if isinstance(value, Mapping):
        return {field.name: _with_times(value[field.name], field.type) for field in kind}
    return _iso_time(value) if isinstance(value, str) and _is_time(kind) else value


def _iso_time(text: str) -> str | None:
    """An arrow time or date in ISO 8601; None for one beyond the calendar, which arrow cannot write."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None if text.startswith("<") else text
    date, time, zone = match[1], without_padding(match[2]), match[3] or ""
    if zone == "Z":
        zone = "+00:00"
    elif zone and ":" not in zone:
        zone = f"{zone[:-2]}:{zone[-2:]}"
    return f"{date}T{time}{zone}" if date else f"{time}{zone}"
