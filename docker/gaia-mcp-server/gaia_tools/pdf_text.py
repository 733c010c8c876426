"""The text of a PDF file, page by page, as it is stored in there. To be called in a process of its own.

PDFium reads it, which is fast. Pages in Arabic or Hebrew, whose letters it mixes up, are read as documents are.
"""

import io
from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.pdf_directions import has_right_to_left
from gaia_tools.pdf_forms import form_fields, has_form, listed
from gaia_tools.pdf_pages import page_markdown

_MAX_PAGES = 2000


def pdf_text(source: bytes | Path) -> list[str]:
    """The text of each page, with the fields of a form and their values; of a scanned page that is nothing.

    Raises:
        ToolError: It is no PDF, is damaged, or needs a password.
    """
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
        text = text_page.get_text_bounded().replace("\r\n", "\n").replace("\x00", "").strip()
        if has_right_to_left(text):
            text = _in_reading_order(source, number) or text
        fields = listed(form_fields(page))
        pages.append("\n\n".join(filter(None, [text, fields and f"Form fields:\n{fields}"])))
        text_page.close()
        page.close()
    return pages


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
    """The pages as one text, each under its number."""
    return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in enumerate(pages, 1))
