"""documents-pdf-server: PDF files, on this machine.

Words come in the order in which the file has them. Tables are those with lines. The fields of a form and notes are
listed after each page, and pages without text are read by OCR. Work stops at the end of a page when there is enough.
"""

import contextlib
import tempfile
import time
from dataclasses import dataclass, replace
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
from gaia_tools.ocr import AUTO, checked_language, read_text
from gaia_tools.pdf_forms import FormField, form_fields, has_form, listed
from gaia_tools.pdf_notes import attached, notes
from gaia_tools.pdf_pages import has_fractions, needs_ocr, page_markdown, picture, plain
from gaia_tools.results import MAX_CHARACTERS, answer, cut

if TYPE_CHECKING:
    from pdfplumber.page import Page

server = FastMCP("documents-pdf-server", log_level="WARNING")
_FORMATS = {".pdf": "PDF, also scanned or encrypted ones and forms"}
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
    language: Annotated[
        str,
        Field(
            description="Of scanned pages, as extract_text_ocr takes it: 'deu', 'eng+fra'; 'auto' finds the script."
        ),
    ] = AUTO,
) -> CallToolResult:
    """Read a PDF file as Markdown: text, tables, filled form fields; scanned pages by OCR. Says how to read on."""
    path = readable(file_path)
    ready("pdfplumber", "pypdfium2")
    if language != AUTO:
        await isolated(checked_language, language)
    parts, facts = await isolated(
        _read, path, pages, password, paginate, language, seconds=_SECONDS, megabytes=_MEGABYTES
    )
    content = "\n\n".join(parts)
    heading = f"{path.name}: {some(facts['pages'], 'page')}"
    heading += f", {facts['title']}" if facts["title"] else ""
    lines = [heading, content]
    if facts["form_fields"]:
        lines.append(
            f"[The file is a form: its fields ({facts['form_fields']} on these pages) are listed after each page.]"
        )
    elif facts["is_form"]:
        lines.append("[The file is a form, without fields that can be read on these pages.]")
    if facts["attached_files"]:
        lines.append(
            f"[Files attached to it: {', '.join(facts['attached_files'])}. They are not shown: pypdf reads them.]"
        )
    if facts["pages_by_ocr"]:
        lines.append(f"[Read by OCR, which makes mistakes: pages {ranges(facts['pages_by_ocr'])}.]")
    if facts["pages_turned"]:
        turns = ", ".join(f"page {number} by {by} degrees" for number, by in facts["pages_turned"].items())
        lines.append(f"[Turned clockwise to be read: {turns}.]")
    if facts["pages_with_fractions"]:
        pages_named = ranges(facts["pages_with_fractions"])
        lines.append(
            f"[Pages with fractions, it seems: {pages_named}. What stands above and below a bar is in two lines here.]"
        )
    if facts["next_pages"]:
        lines.append(
            f"[Shown: pages {facts['shown']}. Ask again with pages='{facts['next_pages']}' for more.]"
        )
    return answer("\n\n".join(lines), {"file": str(path), **facts, "content": content})


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as PDF."""
    return formats(_FORMATS)


@dataclass(frozen=True)
class _PageText:
    """What is on a page, which OCR read after it was ``turned`` clockwise by so many degrees.

    ``has_fractions``: it seems to have fractions, of which numerator and denominator are in different lines.
    """

    text: str
    is_by_ocr: bool = False
    turned: int = 0
    fields: int = 0
    has_fractions: bool = False


def _read(
    path: Path, pages: str, password: str, paginate: bool, language: str
) -> tuple[list[str], dict[str, Any]]:
    began = time.monotonic()
    expect(path, "pdf")
    found, count, title = _opened(path, password)
    numbers = _numbers(pages, count)
    beside = _Beside(path, password)
    parts: list[str] = []
    read: dict[int, _PageText] = {}
    room = MAX_CHARACTERS
    for number in numbers:
        page = _page(found[number - 1] if found else None, number, path, password, language)
        page = _with_fields(page, beside.fields_of(number), beside.notes_of(number), number)
        if parts and len(page.text) > room:
            break
        room -= len(page.text)
        read[number] = page
        parts.append(f"[Page {number}]\n\n{page.text}" if paginate else page.text)
        if time.monotonic() - began > _ENOUGH_SECONDS:
            break
    facts = {
        "pages": count,
        "title": " ".join(title.split())[:_MAX_TITLE_CHARS],
        "shown": ranges(numbers[: len(parts)]),
        "next_pages": ranges(numbers[len(parts) :]),
        "pages_by_ocr": [number for number, page in read.items() if page.is_by_ocr],
        "pages_turned": {str(number): page.turned for number, page in read.items() if page.turned},
        "pages_with_fractions": [number for number, page in read.items() if page.has_fractions],
        "is_form": beside.is_form,
        "form_fields": sum(page.fields for page in read.values()),
        "attached_files": beside.attached_files,
    }
    return parts, facts


class _Beside:
    def __init__(self, path: Path, password: str):
        import pypdfium2

        self.is_form = False
        self.attached_files: list[str] = []
        self._pdf: pypdfium2.PdfDocument | None = None
        with contextlib.suppress(pypdfium2.PdfiumError):
            self._pdf = pypdfium2.PdfDocument(path, password=password or None)
            self.is_form = has_form(self._pdf)
            self.attached_files = attached(self._pdf)

    def fields_of(self, number: int) -> list[FormField]:
        import pypdfium2

        if self._pdf is not None and self.is_form:
            with contextlib.suppress(pypdfium2.PdfiumError):
                return form_fields(self._pdf[number - 1])
        return []

    def notes_of(self, number: int) -> list[str]:
        import pypdfium2

        if self._pdf is not None:
            with contextlib.suppress(pypdfium2.PdfiumError):
                return notes(self._pdf[number - 1])
        return []


def _with_fields(page: _PageText, fields: list[FormField], noted: list[str], number: int) -> _PageText:
    parts = [page.text] if page.text else []
    if fields:
        parts.append(f"[Form fields of this page:]\n{listed(fields)}")
    if noted:
        parts.append("\n".join(["[Notes on this page:]", *noted]))
    text = "\n\n".join(parts) or f"[Page {number} is empty.]"
    return replace(page, text=cut(text, _MAX_PAGE_CHARS)[0], fields=len(fields))


def _opened(path: Path, password: str) -> "tuple[list[Page], int, str]":
    """The pages of a file, how many, and its title; no pages where it is so damaged that only PDFium reads it."""
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


def _page(page: "Page | None", number: int, path: Path, password: str, language: str) -> _PageText:
    import pypdfium2

    text, problem, is_picture, fractions = "", "", page is None, False
    if page is not None:
        try:
            text = page_markdown(page)
            is_picture = needs_ocr(page, text)
            fractions = has_fractions(page)
        except MemoryError:
            raise
        except Exception as error:  # a damaged page may raise anything, and the others may be sound
            is_picture = True
            reason = str(error)[:200] or type(error).__name__
            problem = f"[Page {number} is damaged: {reason}]"
        page.close()
    if not text:
        with contextlib.suppress(pypdfium2.PdfiumError):
            text = plain(path, password, number)
            is_picture = is_picture and not text
    if is_picture:
        return _by_ocr(path, password, number, language, text, problem)
    return _PageText(text or problem, has_fractions=fractions)


def _by_ocr(path: Path, password: str, number: int, language: str, text: str, problem: str) -> _PageText:
    import pypdfium2

    try:
        with tempfile.TemporaryDirectory(prefix="page-") as folder:
            source = Path(folder, "page.png")
            picture(path, password, number).save(source)
            found = read_text(source, language, preprocess=False)
    except (ToolError, pypdfium2.PdfiumError, OSError, ValueError) as error:
        note = f"[Page {number} is a picture and could not be read: {error}]"
        return _PageText("\n\n".join(filter(None, [problem, text, note])))
    if words := str(found["text"]).strip():
        return _PageText(words, is_by_ocr=True, turned=found["turned"][0])
    note = problem or f"[Page {number} is a picture in which OCR found no text.]"
    return _PageText("\n\n".join(filter(None, [text, note])))


def _numbers(pages: str, count: int) -> list[int]:
    """The pages named by ``3-7,9`` or ``12-``; all where nothing is said."""
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
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
