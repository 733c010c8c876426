"""documents-pdf-server: PDF files, on this machine.

Words come in the order in which the file has them, which is that of reading, by columns too. Tables are those with
lines. Pages without text are read by OCR. Work stops at the end of a page when there is enough of it.
"""

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.documents import FilePath, Password, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.ocr import read_text
from gaia_tools.pdf_pages import needs_ocr, page_markdown, picture, plain
from gaia_tools.results import MAX_CHARACTERS, answer, cut

if TYPE_CHECKING:
    from pdfplumber.page import Page

server = FastMCP("documents-pdf-server", log_level="WARNING")
_FORMATS = {".pdf": "PDF, also scanned and encrypted ones"}
_SECONDS = 150
_ENOUGH_SECONDS = 60  # after which no other page is begun
_MEGABYTES = 2048
_MAX_PAGE_CHARS = 2 * MAX_CHARACTERS
_MAX_TITLE_CHARS = 200


@server.tool()
async def convert_document_to_markdown(
    file_path: FilePath,
    paginate: Annotated[bool, Field(description="Say where each page begins.")] = False,
    pages: Annotated[
        str, Field(description="Which pages, such as '3-7', '1,4' or '12-'; without it, from the first on.")
    ] = "",
    password: Password = "",
) -> CallToolResult:
    """Read a PDF file as Markdown: headings, text, tables; scanned pages by OCR. Says with which pages to read on."""
    path = readable(file_path)
    ready("pdfplumber", "pypdfium2")
    parts, facts = await isolated(
        _read, path, pages, password, paginate, seconds=_SECONDS, megabytes=_MEGABYTES
    )
    content = "\n\n".join(parts)
    heading = f"{path.name}: {some(facts['pages'], 'page')}"
    heading += f", {facts['title']}" if facts["title"] else ""
    notes = [heading, content]
    if facts["pages_by_ocr"]:
        notes.append(f"[Read by OCR, which makes mistakes: pages {ranges(facts['pages_by_ocr'])}.]")
    if facts["next_pages"]:
        notes.append(
            f"[Shown: pages {facts['shown']}. Ask again with pages='{facts['next_pages']}' for more.]"
        )
    return answer("\n\n".join(notes), {"file": str(path), **facts, "content": content})


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as PDF."""
    return formats(_FORMATS)


def _read(path: Path, pages: str, password: str, paginate: bool) -> tuple[list[str], dict[str, Any]]:
    began = time.monotonic()
    expect(path, "pdf")
    found, count, title = _opened(path, password)
    numbers = _numbers(pages, count)
    parts: list[str] = []
    by_ocr: list[int] = []
    room = MAX_CHARACTERS
    for number in numbers:
        text, was_ocr = _page(found[number - 1] if found else None, number, path, password)
        if parts and len(text) > room:
            break
        room -= len(text)
        by_ocr += [number] * was_ocr
        parts.append(f"[Page {number}]\n\n{text}" if paginate else text)
        if time.monotonic() - began > _ENOUGH_SECONDS:
            break
    facts = {
        "pages": count,
        "title": " ".join(title.split())[:_MAX_TITLE_CHARS],
        "shown": ranges(numbers[: len(parts)]),
        "next_pages": ranges(numbers[len(parts) :]),
        "pages_by_ocr": by_ocr,
    }
    return parts, facts


def _opened(path: Path, password: str) -> "tuple[list[Page], int, str]":
    """The pages of a file, how many, and its title; no pages where it is so damaged that only PDFium reads it.

    Raises:
        ToolError: It cannot be read, or not with that password.
    """
    import pdfplumber
    import pypdfium2
    from pdfminer.pdfdocument import PDFPasswordIncorrect

    try:
        pdf = pdfplumber.open(path, password=password)
        if pdf.pages:
            return pdf.pages, len(pdf.pages), str(pdf.metadata.get("Title") or "")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file may raise anything
        if error.args and isinstance(error.args[0], PDFPasswordIncorrect):
            raise ToolError(
                f"{path.name} is encrypted, and not with the password given."
                if password
                else f"{path.name} is encrypted. Give its password with password=..."
            ) from error
    try:
        with pypdfium2.PdfDocument(path, password=password or None) as repaired:
            if count := len(repaired):
                return [], count, ""
    except pypdfium2.PdfiumError as error:
        raise ToolError(f"{path.name} is damaged, or no PDF that can be read: {error}.") from error
    raise ToolError(f"{path.name} is damaged: no page is found in it.")


def _page(page: "Page | None", number: int, path: Path, password: str) -> tuple[str, bool]:
    """What is on a page, and whether OCR read it."""
    import pypdfium2

    text, problem, is_picture = "", "", page is None
    if page is not None:
        try:
            text = page_markdown(page)
            is_picture = needs_ocr(page, text)
        except MemoryError:
            raise
        except Exception as error:  # a damaged page may raise anything, and the others may be sound
            is_picture = True
            problem = f"[Page {number} is damaged: {type(error).__name__}: {str(error)[:200]}]"
        page.close()
    if not text:
        with contextlib.suppress(pypdfium2.PdfiumError):
            text = plain(path, password, number)
            is_picture = is_picture and not text
    if is_picture:
        text = _by_ocr(path, password, number) or text
    return cut(text or problem or f"[Page {number} is empty.]", _MAX_PAGE_CHARS)[0], is_picture


def _by_ocr(path: Path, password: str, number: int) -> str:
    import pypdfium2

    try:
        with tempfile.TemporaryDirectory(prefix="page-") as folder:
            source = Path(folder, "page.png")
            picture(path, password, number).save(source)
            return str(read_text(source, "eng", preprocess=False)["text"]).strip()
    except (ToolError, pypdfium2.PdfiumError, OSError, ValueError) as error:
        return f"[Page {number} is a picture and could not be read: {error}]"


def _numbers(pages: str, count: int) -> list[int]:
    """The pages named by ``3-7,9`` or ``12-``; all where nothing is said.

    Raises:
        ToolError: It names none that the file has.
    """
    numbers: list[int] = []
    for piece in filter(None, pages.replace(" ", "").split(",")):
        first, dash, last = piece.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or (dash and not last))) and not piece.isdecimal():
            raise ToolError(f"pages is {pages!r}; it has to be such as '3-7', '1,4' or '12-'.")
        end = int(last) if last else count if dash else int(first)
        numbers += range(max(int(first), 1), min(end, count) + 1)
    if pages.strip() and not numbers:
        raise ToolError(f"There are no pages {pages!r}: the file has {some(count, 'page')}.")
    return list(dict.fromkeys(numbers)) or list(range(1, count + 1))


def ranges(numbers: list[int]) -> str:
    """``1-3,7`` for 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
