"""A file that xz compressed, as a stream of bytes.

Python's own `lzma.open` takes as much memory as the file asks for, which can be 4 GiB; this stream refuses more than
`MAX_MEMORY`. The strongest setting of xz asks for 65 MiB.
"""

import io
import lzma
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_MEMORY = 128 * 2**20

_CHUNK = 2**16


class XzStream(io.RawIOBase):
    """The decompressed bytes; streams that follow each other in the file are read as one.

    Reading raises `OSError` where the file is damaged, cut off, or asks for too much memory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb")
        self._decompressor = _decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _read(self, size: int) -> bytes:
        """At least one byte; none at the end of the file."""
        while True:
            chunk = b""
            if self._decompressor.eof:
                chunk = self._next_stream()
                if not chunk:
                    return b""
            elif self._decompressor.needs_input:
                chunk = self._file.read(_CHUNK)
                if not chunk:
                    raise OSError("the compressed data is cut off")
            try:
                data = self._decompressor.decompress(chunk, size)
            except lzma.LZMAError as error:
                raise OSError(_reason(error)) from error
            if data:
                return data

    def _next_stream(self) -> bytes:
        data = self._decompressor.unused_data
        while not (data := data.lstrip(b"\0")):
            if not (data := self._file.read(_CHUNK)):
                return b""
        self._decompressor = _decompressor()
        return data


def _decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)


def _reason(error: lzma.LZMAError) -> str:
    if "Memory usage limit" in str(error):
        return (
            f"it needs more than {MAX_MEMORY >> 20} MiB to decompress; compress it again with xz -9 or less"
        )
    return str(error)
