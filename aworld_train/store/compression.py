"""Zstandard (RFC 8878) through Arrow, which datasets need anyway; a length in front tells how much memory it takes."""

import struct
from functools import cache
from typing import Any

_LEVEL = 3
_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 1 << 32


def compressed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + bytes(_codec().compress(data, asbytes=True))


def decompressed(data: bytes) -> bytes:
    """What was compressed; raises ValueError if it is damaged."""
    if len(data) < _LENGTH.size:
        raise ValueError("compressed data without their length")
    (length,) = _LENGTH.unpack_from(data)
    if length > _MAX_BYTES:
        raise ValueError(f"compressed data that claim {length:,} bytes")
    if not length:
        return b""
    try:
        return bytes(_codec().decompress(data[_LENGTH.size :], length, asbytes=True))
    except OSError as error:
        raise ValueError(f"compressed data that cannot be read: {error}") from error


@cache
def _codec() -> Any:
    import pyarrow

    return pyarrow.Codec("zstd", compression_level=_LEVEL)
