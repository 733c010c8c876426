"""Text files in other encodings than UTF-8: their lines are read as UTF-8, so that nothing after has to know.

A byte that the encoding has no character for becomes a byte that is not UTF-8, so that only its own record is unusable.
"""

import io
from collections.abc import Iterator
from encodings.aliases import aliases
from itertools import chain
from pathlib import Path

from aworld_train.errors import DatasetError, UsageError, suggestion

UTF8 = "utf-8"

_BYTE_ORDER_MARK = "\ufeff"
_MARKS = {
    # That of UTF-32 begins with that of UTF-16.
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
MARK_BYTES = 4


def encoding_name(name: str) -> str:
    """The name of a text encoding that Python knows; `UTF8` for every spelling of that."""
    try:
        "".encode(name)
    except (LookupError, ValueError) as error:
        known = {alias.replace("_", "-") for alias in aliases.values()}
        hint = suggestion(name.casefold(), known, " For example utf-16, cp1252, gb18030.")
        raise UsageError(f"--encoding {name}: no such text encoding.{hint}") from error
    return UTF8 if name.casefold().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig") else name


def not_in_encoding(encoding: str) -> str:
    if encoding == UTF8:
        return "not UTF-8; for text from Windows try --encoding cp1252"
    return f"not {encoding} text; is that its --encoding?"


def check_utf8(path: Path, start: bytes) -> None:
    encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if encoding is None and len(start) >= 2 and (start[0] == 0) != (start[1] == 0):
        # Without a mark: every other byte of Latin text is zero.
        encoding = "utf-16-be" if start[0] == 0 else "utf-16-le"
    if encoding is not None:
        raise DatasetError(f"{path} is written in {encoding.upper()}. Give --encoding {encoding}.")


def utf8_lines(path: Path, file: io.BufferedReader, encoding: str, max_characters: int) -> Iterator[bytes]:
    """The lines of a file of another encoding, as UTF-8; one longer than `max_characters` comes in several pieces."""
    text = io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline="\n")
    try:
        first = text.readline(max_characters).removeprefix(_BYTE_ORDER_MARK)
        for line in chain((first,), iter(lambda: text.readline(max_characters), "")):
            if line:
                yield line.encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        reason = getattr(error, "reason", str(error))
        raise DatasetError(f"{path} is not {encoding} text: {reason}. Give another --encoding.") from error
