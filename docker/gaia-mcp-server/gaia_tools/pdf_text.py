"""The text of a PDF file, page by page, as it is stored in there. To be called in a process of its own.

PDFium reads it, which is fast. Pages in Arabic or Hebrew, whose letters it mixes up, are read as documents are.
"""

import ctypes
import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import superscripts
from gaia_tools.pdf_directions import has_right_to_left
from gaia_tools.pdf_forms import form_fields, has_form, listed
from gaia_tools.pdf_notes import notes
from gaia_tools.pdf_pages import page_markdown, script_level

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_MAX_PAGES = 2000


def pdf_text(source: bytes | Path) -> list[str]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as error:
        raise ToolError(f"This PDF cannot be read: {error}") from error
    has_form(document)
    pages = []
    for number in range(min(len(document), _MAX_PAGES)):
        page = document[number]
        text_page = page.get_textpage()
        text = _with_scripts(text_page) if _may_have_scripts(page) else ""
        text = (text or text_page.get_text_bounded()).replace("\r\n", "\n")
        text = text.replace("\x00", "").strip()
        if has_right_to_left(text):
            text = _in_reading_order(source, number) or text
        fields = listed(form_fields(page))
        noted = "\n".join(notes(page))
        pages.append("\n\n".join(filter(None, [text, fields and f"Form fields:\n{fields}", noted])))
        text_page.close()
        page.close()
    return pages


def _may_have_scripts(page: "PdfPage") -> bool:
    """Whether a run of text stands a little higher or lower than a larger one: letter by letter takes ten times as long
    to find out.
    """
    import pypdfium2.raw as pdfium

    matrix, font_size = pdfium.FS_MATRIX(), ctypes.c_float()
    lines: set[tuple[float, float]] = set()
    for one in page.get_objects([pdfium.FPDF_PAGEOBJ_TEXT, pdfium.FPDF_PAGEOBJ_FORM], max_depth=1):
        if one.type == pdfium.FPDF_PAGEOBJ_FORM:
            return True
        if pdfium.FPDFPageObj_GetMatrix(one.raw, matrix) and pdfium.FPDFTextObj_GetFontSize(
            one.raw, font_size
        ):
            lines.add((round(font_size.value * matrix.d, 2), round(matrix.f, 2)))
    return any(
        script_level(size, base, height - line)
        for size, height in lines
        for base, line in lines
        if size < base
    )


def _with_scripts(text_page: "PdfTextPage") -> str:
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    pieces: list[superscripts.Piece] = []
    base: tuple[float, float] | None = None
    raw = text_page.raw
    for number in range(text_page.count_chars()):
        letter = chr(pdfium.FPDFText_GetUnicode(raw, number))
        level = 0
        if (
            letter.isspace()
            or not pdfium.FPDFText_GetMatrix(raw, number, matrix)
            or matrix.b
            or matrix.d <= 0
        ):
            base = None
        else:
            size = pdfium.FPDFText_GetFontSize(raw, number) * matrix.d
            level = script_level(size, base[0], matrix.f - base[1]) if base else 0
            base = base if level else (size, matrix.f)
        pieces.append((letter, level))
    if not any(level for _, level in pieces):
        return ""
    lines = itertools.groupby(pieces, key=lambda piece: piece[0] in "\r\n")
    return "".join(superscripts.joined(list(line)) for _, line in lines)


def _in_reading_order(source: bytes | Path, number: int) -> str:
    """Empty where the page cannot be read so."""
    import pdfplumber

    try:
        with pdfplumber.open(io.BytesIO(source) if isinstance(source, bytes) else source) as document:
            return page_markdown(document.pages[number])
    except MemoryError:
        raise
    except Exception:  # a damaged file may raise anything
        return ""


def paged(pages: list[str]) -> str:
    return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in enumerate(pages, 1))
