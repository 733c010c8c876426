"""Number formats and superscripts of .xlsb files, which calamine leaves out: records of [MS-XLSB]."""

import io
import itertools
import posixpath
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gaia_tools.superscripts import joined

_BOOK = "xl/workbook.bin"
_LEVELS = {1: 1, 2: -1}  # of BrtFont: superscript and subscript
# Records: BrtRowHdr, BrtCellRk to BrtFmlaError, BrtCellIsst, BrtSSTItem, BrtFont, BrtFmt, BrtXF, BrtBundleSh.
_ROW, _CELLS, _SHARED, _ITEM, _FONT, _FORMAT, _STYLE, _SHEET = 0, range(1, 12), 7, 19, 43, 44, 47, 156
_FONTS, _STYLES = (611, 612), (617, 618)  # where those of the workbook begin and end


@dataclass
class BinarySheet:
    """What is read of a sheet.

    Attributes:
        formats: The number of a format of Excel's own, or the format, by the number of a style.
        styles: The style of each cell, by row and column from 0.
        texts: Cells whose text has superscripts, with these marked.
    """

    formats: dict[int, int | str] = field(default_factory=dict)
    styles: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)


def is_binary(content: io.BytesIO) -> bool:
    with zipfile.ZipFile(content) as book:
        return _BOOK in book.namelist()


def with_scripts(content: io.BytesIO, sheet: str, rows: list[list[Any]]) -> list[list[Any]]:
    """The rows, with ``10^-3``; as they are where the file cannot be read."""
    try:
        texts = read(content, sheet).texts if is_binary(content) else {}
    except (KeyError, ValueError, IndexError, StopIteration, struct.error, OSError):
        return rows
    found = [list(row) for row in rows]
    for (row, column), text in texts.items():
        if row < len(found) and column < len(found[row]):
            found[row][column] = text
    return found


def read(content: io.BytesIO, sheet: str) -> BinarySheet:
    """Formats and superscripts of a sheet; raises many kinds of errors where the file is damaged."""
    found = BinarySheet()
    with zipfile.ZipFile(content) as book:
        levels = _read_styles(book.read("xl/styles.bin"), found)
        names = book.namelist()
        strings = book.read("xl/sharedStrings.bin") if "xl/sharedStrings.bin" in names else b""
        items = (body for kind, body in _records(strings) if kind == _ITEM)
        raised = {number: text for number, body in enumerate(items) if (text := _marked(body, levels))}
        row = 0
        for kind, body in _records(book.read(_part(book, sheet))):
            if kind == _ROW:
                (row,) = struct.unpack_from("<I", body)
            elif kind in _CELLS:
                column, style = struct.unpack_from("<II", body)
                found.styles[row, column] = style & 0xFFFFFF
                if kind == _SHARED and (number := struct.unpack_from("<I", body, 8)[0]) in raised:
                    found.texts[row, column] = raised[number]
    return found


def _read_styles(source: bytes, found: BinarySheet) -> list[int]:
    codes: dict[int, str] = {}
    ids: list[int] = []
    levels: list[int] = []
    place = 0
    for kind, body in _records(source):
        if kind in (*_FONTS, *_STYLES):
            place = kind
        elif kind == _FORMAT:
            codes[struct.unpack_from("<H", body)[0]] = _text(body, 2)[0]
        elif kind == _FONT and place == _FONTS[0]:
            levels.append(_LEVELS.get(struct.unpack_from("<H", body, 6)[0], 0))
        elif kind == _STYLE and place == _STYLES[0]:
            ids.append(struct.unpack_from("<H", body, 2)[0])
    found.formats.update((style, codes.get(one, one)) for style, one in enumerate(ids))
    return levels


def _marked(item: bytes, levels: list[int]) -> str:
    text, end = _text(item, 1)
    if not item[0] & 1:
        return ""
    (count,) = struct.unpack_from("<I", item, end)
    runs = [struct.unpack_from("<HH", item, end + 4 + 4 * number) for number in range(count)]
    places = [0, *(place for place, _ in runs), len(text)]
    raised = [0, *(levels[font] for _, font in runs)]
    pieces = [
        (text[start:end], level)
        for (start, end), level in zip(itertools.pairwise(places), raised, strict=True)
    ]
    return joined(pieces) if any(raised) else ""


def _part(book: zipfile.ZipFile, sheet: str) -> str:
    from defusedxml.ElementTree import fromstring

    for kind, body in _records(book.read(_BOOK)):
        if kind == _SHEET:
            link, end = _text(body, 8)
            if _text(body, end)[0] == sheet:
                links = fromstring(book.read("xl/_rels/workbook.bin.rels"))
                target = next(one.get("Target", "") for one in links if one.get("Id") == link)
                return posixpath.normpath(posixpath.join("xl", target)).removeprefix("/")
    raise KeyError(sheet)


def _text(body: bytes, place: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", body, place)
    end = place + 4 + 2 * length
    return body[place + 4 : end].decode("utf-16-le"), end


def _records(source: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(source):
        kind, size = source[place], 0
        place += 1
        if kind & 0x80:
            kind = kind & 0x7F | source[place] << 7
            place += 1
        for shift in range(0, 28, 7):
            byte = source[place]
            place += 1
            size |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
        yield kind, source[place : place + size]
        place += size
