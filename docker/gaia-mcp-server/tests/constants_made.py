"""The physical constants of CODATA, as SciPy has them, in documents of every kind: values with exponents and units."""

import html
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from gaia_tools.formulas import CONTAINER, PACKAGE

Line = list[tuple[str, int]]
"""Pieces of text, each raised (1) or not (0)."""


def constants(step: int) -> list[str]:
    """Every so many of them, such as ``proton mass: 1.67262192595 × 10^-27 kg``."""
    from scipy.constants import physical_constants

    lines = []
    for name, (value, unit, _) in list(physical_constants.items())[::step]:
        number, _, exponent = f"{value!r}".partition("e")
        power = f" × 10^{int(exponent)}" if exponent else ""
        # SciPy writes an exponent of two letters with a bracket, (m^-2)^-1, which is not a separate superscript.
        lines.append(f"{name}: {number}{power} {unit}".strip())
    return [line for line in lines if "(" not in line]


def pieces(line: str) -> Line:
    parts = re.split(r"\^(-?\d+)", line)
    return [(part, number % 2) for number, part in enumerate(parts) if part]


def _marked(line: Line, raised: str, plain: Callable[[str], str] = html.escape) -> str:
    return "".join(raised.format(plain(text)) if level else plain(text) for text, level in line)


def page(lines: list[Line], path: Path) -> None:
    body = "".join(f"<p>{_marked(line, '<sup>{}</sup>')}</p>" for line in lines)
    path.write_text(
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head><meta charset="utf-8"/></head><body>{body}</body></html>'
    )


def book(lines: list[Line], path: Path) -> None:
    page(lines, inner := path.with_suffix(".xhtml"))
    with zipfile.ZipFile(path, "w") as file:
        for name, text in {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "a.opf": PACKAGE,
            "a.xhtml": inner.read_text(),
        }.items():
            file.writestr(name, text)


def word(lines: list[Line], path: Path) -> None:
    import docx

    document = docx.Document()
    for line in lines:
        paragraph = document.add_paragraph()
        for text, level in line:
            paragraph.add_run(text).font.superscript = bool(level)
    document.save(str(path))


def slides(lines: list[Line], path: Path) -> None:
    import pptx

    show = pptx.Presentation()
    for line in lines:
        frame = show.slides.add_slide(show.slide_layouts[5]).shapes.title.text_frame
        for text, level in line:
            run = frame.paragraphs[0].add_run()
            run.text = text
            if level:
                run.font._element.set("baseline", "30000")
    show.save(str(path))


def workbook(lines: list[Line], path: Path) -> None:
    import openpyxl
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont

    book = openpyxl.Workbook()
    for number, line in enumerate(lines, 1):
        parts = [
            TextBlock(InlineFont(vertAlign="superscript"), text) if level else text for text, level in line
        ]
        book.active.cell(number, 1).value = CellRichText(parts)
    book.save(path)


def old_workbook(lines: list[Line], path: Path) -> None:
    import xlwt

    book, raised = xlwt.Workbook(), xlwt.Font()
    raised.escapement = xlwt.Font.ESCAPEMENT_SUPERSCRIPT
    sheet = book.add_sheet("Constants")
    for number, line in enumerate(lines):
        sheet.write_rich_text(number, 0, [(text, raised if level else xlwt.Font()) for text, level in line])
    book.save(str(path))


def open_text(lines: list[Line], path: Path) -> None:
    from odf.opendocument import OpenDocumentText

    document = OpenDocumentText()
    for paragraph in _open_paragraphs(document, lines):
        document.text.addElement(paragraph)
    document.save(str(path))


def open_sheet(lines: list[Line], path: Path) -> None:
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow

    document, table = OpenDocumentSpreadsheet(), Table(name="Constants")
    document.spreadsheet.addElement(table)
    for paragraph in _open_paragraphs(document, lines):
        row, cell = TableRow(), TableCell(valuetype="string")
        cell.addElement(paragraph)
        row.addElement(cell)
        table.addElement(row)
    document.save(str(path))


def _open_paragraphs(document, lines):  # type: ignore[no-untyped-def]
    from odf.style import Style, TextProperties
    from odf.text import P, Span

    raised = Style(name="Raised", family="text")
    raised.addElement(TextProperties(textposition="super 58%"))
    document.automaticstyles.addElement(raised)
    for line in lines:
        paragraph = P()
        for text, level in line:
            if level:
                paragraph.addElement(Span(stylename=raised, text=text))
            else:
                paragraph.addText(text)
        yield paragraph


def rich_text(lines: list[Line], path: Path) -> None:
    def plain(text: str) -> str:
        return "".join(one if one.isascii() else f"\\u{ord(one)}?" for one in text)

    body = "\\par\n".join(_marked(line, "{{\\super {}}}", plain) for line in lines)
    path.write_text(f"{{\\rtf1\\ansi\\deff0{{\\fonttbl{{\\f0 Times;}}}}\n{body}\\par}}")


def printed(lines: list[Line], path: Path) -> None:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    style = getSampleStyleSheet()["Normal"]
    SimpleDocTemplate(str(path)).build(
        [Paragraph(_marked(line, "<super>{}</super>"), style) for line in lines]
    )


WRITERS = {
    ".html": page,
    ".epub": book,
    ".docx": word,
    ".pptx": slides,
    ".xlsx": workbook,
    ".xls": old_workbook,
    ".odt": open_text,
    ".ods": open_sheet,
    ".rtf": rich_text,
    ".pdf": printed,
}
