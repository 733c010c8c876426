"""The text of a PDF file, page by page, as it is stored in there. To be called in a process of its own."""

from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

_MAX_PAGES = 2000


def pdf_text(source: bytes | Path) -> list[str]:
    """The text of each page; of a scanned page that is nothing.

    Raises:
        ToolError: It is no PDF, is damaged, or needs a password.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as error:
        raise ToolError(f"This PDF cannot be read: {error}") from error
    pages = []
    for number in range(min(len(document), _MAX_PAGES)):
        page = document[number]
        text_page = page.get_textpage()
        pages.append(text_page.get_text_bounded().replace("\r\n", "\n").replace("\x00", "").strip())
        text_page.close()
        page.close()
    return pages


def paged(pages: list[str]) -> str:
    """The pages as one text, each under its number."""
    return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in enumerate(pages, 1))
