"""The values of arrow columns as tasks have them: floats as they were written, times in ISO 8601, labels by name.

Texts of the type ``arrow.json``, which `datasets` gives to columns of its type ``Json``, become what they stand for.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import pyarrow as pa

from aworld_train.dataset.sources.features import label_decoder
from aworld_train.dataset.sources.values import read_json, without_padding
from aworld_train.errors import UsageError

_NO_TEXT = b"\xff"
"""Stands for a text that is not UTF-8."""

_TIME = re.compile(r"(?:(-?\d{4,}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:?\d\d)?")


def column_values(column: pa.Array, feature: object = None) -> list[object]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if any(_is_time(leaf) or _is_short_float(leaf) for leaf in _leaves(kind)):
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
    for convert in (_converter(kind), label_decoder(feature)):
        if convert is not None:
            values = [convert(value) for value in values]
    return values


def check_readable(kind: pa.DataType, path: Sequence[str], what: str) -> None:
    for name in path:
        if not (pa.types.is_struct(kind) and kind.get_field_index(name) >= 0):
            return
        kind = kind.field(name).type
    for leaf in _leaves(kind):
        if pa.types.is_duration(leaf):
            raise UsageError(
                f"{what}, has the type {leaf}, and a length of time has no one text. Make it a number or a text."
            )


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
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type)
        yield from _leaves(kind.item_type)
    else:
        yield kind


def _replaced(kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replaced(field.type, replace)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_replaced(kind.key_type, replace), _replaced(kind.item_type, replace))
    if not _is_list(kind):
        return replace(kind)
    item = kind.value_field.with_type(_replaced(kind.value_type, replace))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)


def _converter(kind: pa.DataType) -> Callable[[object], object] | None:
    """What makes values of this type those of tasks; None where they are already."""
    if _is_time(kind):
        return lambda value: _iso_time(value) if isinstance(value, str) else value
    match getattr(kind, "extension_name", ""):
        case "arrow.json":
            return lambda value: _json_value(value) if isinstance(value, str) else value
        case "arrow.uuid":
            return lambda value: str(value) if isinstance(value, UUID) else value
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type) or _same, _converter(kind.item_type) or _same
        return lambda value: (
            {key(name): item(one) for name, one in value} if isinstance(value, list) else value
        )
    if _is_list(kind) and (inner := _converter(kind.value_type)):
        return lambda value: list(map(inner, value)) if isinstance(value, list) else value
    if pa.types.is_struct(kind):
        fields = {field.name: convert for field in kind if (convert := _converter(field.type))}
        if fields:
            return lambda value: (
                value | {name: fields[name](value[name]) for name in fields}
                if isinstance(value, dict)
                else value
            )
    return None


def _same(value: object) -> object:
    return value


def _json_value(text: str) -> object:
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"a value of the type arrow.json cannot be read: {error}") from None


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
