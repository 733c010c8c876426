"""What a spreadsheet shows in cells whose stored number is another: ``50%`` for 0.5, ``$1,234.50``, ``00042``.

OpenDocument files have that as text. Excel files have formats, which anydoc applies in an .xlsx file made of the cells.
"""

import datetime
import io
import re
import zipfile
from html import escape
from typing import Any

from gaia_tools import binary_sheets, office_model

Cell = tuple[int, int]
"""Row and column, from 0."""

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_SHEET = f"{{{_MAIN}}}"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml."
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType="application'
    '/vnd.openxmlformats-package.relationships+xml"/>'
    + "".join(
        f'<Override PartName="/xl/{part}.xml" ContentType="{_TYPE}{kind}+xml"/>'
        for part, kind in (("workbook", "sheet.main"), ("s", "worksheet"), ("styles", "styles"))
    )
    + "</Types>",
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
    f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets><sheet name="s" sheetId="1" r:id="r1"/>'
    "</sheets></workbook>",
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
    f'Type="{_OFFICE}/worksheet" Target="s.xml"/><Relationship Id="r2" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    "</Relationships>",
}
_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_TABLE, _TEXT, _VALUE_TYPE = (
    f"{{{_OASIS}table:1.0}}",
    f"{{{_OASIS}text:1.0}}",
    f"{{{_OASIS}office:1.0}}value-type",
)
_NUMBERS = ("float", "percentage", "currency", "time")
_MAX_COLUMNS = 16384
_GENERAL = 0
_FIRST_OF_FILES = 164  # formats with lower numbers are Excel's own
_ADDRESS = re.compile(r"([A-Z]+)(\d+)")
# What stands between quotes, behind a backslash or in brackets, and signs such as the euro's, which need no quotes.
_SIGNS = re.compile(r'("[^"]*"|\\.|\[[^\]]*\]|[_*].)|([^\x00-\x7f]+)')


def as_shown(
    content: io.BytesIO, kind: str, sheet: str, rows: list[list[Any]], first: int
) -> dict[Cell, str]:
    """What the sheet shows in the cells of ``rows``, from row ``first`` (from 0), that hold a number and show something
    else.

    Nothing where the libraries cannot read the formats.
    """
    cells = {
        (first + row, column): value
        for row, values in enumerate(rows)
        for column, value in enumerate(values)
        if isinstance(value, int | float | datetime.timedelta) and not isinstance(value, bool)
    }
    if not cells:
        return {}
    try:
        content.seek(0)
        if kind == "ods":
            shown = _of_ods(content, sheet, first + len(rows))
        elif kind == "xls":
            shown = _formatted(*_of_xls(content, sheet), cells)
        elif binary_sheets.is_binary(content):
            book = binary_sheets.read(content, sheet)
            shown = _formatted(book.formats, book.styles, cells)
        else:
            shown = _formatted(*_of_xlsx(content, sheet, first + len(rows)), cells)
    except Exception:  # damaged files end the libraries in many ways
        return {}
    return {cell: shown[cell] for cell in cells if _differs(shown.get(cell, ""), cells[cell])}


def _differs(shown: str, value: Any) -> bool:
    """Commas between thousands and zeros at the end make no difference, zeros at the beginning do."""
    try:
        return float(shown.replace(",", "")) != value or re.match("-?0[0-9]", shown) is not None
    except ValueError:
        return shown not in ("", str(value))


Formats = dict[int, int | str]
"""The number of a format of Excel's own, or the format, by the number of a style."""


def _formatted(formats: Formats, styles: dict[Cell, int], cells: dict[Cell, Any]) -> dict[Cell, str]:
    import anydoc

    chosen = [cell for cell in cells if formats.get(styles.get(cell, 0), _GENERAL) != _GENERAL]
    if not chosen:
        return {}
    distinct = dict.fromkeys(formats[styles[cell]] for cell in chosen)
    numbers = {one: place for place, one in enumerate(distinct)}
    ids = {one: one if isinstance(one, int) else 1000 + place for one, place in numbers.items()}
    custom = "".join(
        f'<numFmt numFmtId="{ids[one]}" formatCode="{escape(_quoted(one))}"/>'
        for one in distinct
        if isinstance(one, str)
    )
    kinds = "".join(f'<xf numFmtId="{ids[one]}" applyNumberFormat="1"/>' for one in distinct)
    column = "".join(
        f'<row r="{row}"><c r="A{row}" s="{numbers[formats[styles[cell]]]}"><v>{_number(cells[cell])}</v></c></row>'
        for row, cell in enumerate(chosen, 1)
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        for name, text in {
            **_PARTS,
            "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><numFmts>{custom}</numFmts><cellXfs>{kinds}</cellXfs>'
            "</styleSheet>",
            "xl/s.xml": f'<worksheet xmlns="{_MAIN}"><sheetData>{column}</sheetData></worksheet>',
        }.items():
            book.writestr(name, text)
    (block,) = anydoc.to_document(file.getvalue(), "xlsx").blocks
    written = [slot.cell.blocks if slot.cell else [] for (slot, *_) in block.table.grid]
    texts = (" ".join(office_model.plain(part.content) for part in parts) for parts in written)
    return dict(zip(chosen, texts, strict=True))


def _quoted(code: str) -> str:
    return _SIGNS.sub(lambda found: found[1] or f'"{found[2]}"', code)


def _number(value: Any) -> str:
    return repr(value / datetime.timedelta(days=1) if isinstance(value, datetime.timedelta) else value)


def _of_xlsx(content: io.BytesIO, sheet: str, end: int) -> tuple[Formats, dict[Cell, int]]:
    from defusedxml.ElementTree import fromstring, iterparse

    styles: dict[Cell, int] = {}
    with zipfile.ZipFile(content) as book:
        parsed = fromstring(book.read("xl/styles.xml"))
        codes = {one.get("numFmtId"): one.get("formatCode") for one in parsed.iter(f"{_SHEET}numFmt")}
        ids = [one.get("numFmtId", "0") for one in parsed.iterfind(f"{_SHEET}cellXfs/{_SHEET}xf")]
        formats: Formats = {style: codes.get(one) or int(one) for style, one in enumerate(ids)}
        if set(formats.values()) == {_GENERAL}:
            return formats, styles
        sheets = fromstring(book.read("xl/workbook.xml")).iter(f"{_SHEET}sheet")
        link = next(one.get(f"{{{_OFFICE}}}id") for one in sheets if one.get("name") == sheet)
        links = fromstring(book.read("xl/_rels/workbook.xml.rels"))
        target = next(one.get("Target", "") for one in links if one.get("Id") == link)
        part = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
        for _, row in iterparse(book.open(part)):
            if row.tag != f"{_SHEET}row":
                continue
            for one in row.iterfind(f"{_SHEET}c[@s]"):
                if found := _ADDRESS.fullmatch(one.get("r", "")):
                    styles[int(found[2]) - 1, _column(found[1])] = int(one.get("s", "0"))
            if int(row.get("r", "0")) >= end:
                break
            row.clear()
    return formats, styles


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _of_xls(content: io.BytesIO, sheet: str) -> tuple[Formats, dict[Cell, int]]:
    import xlrd

    book = xlrd.open_workbook(file_contents=content.read(), formatting_info=True, logfile=io.StringIO())
    cells = book.sheet_by_name(sheet)
    formats: Formats = {}
    for style, record in enumerate(book.xf_list):
        key = record.format_key
        formats[style] = key if key < _FIRST_OF_FILES else book.format_map[key].format_str
    styles = {
        (row, column): cells.cell_xf_index(row, column)
        for row in range(cells.nrows)
        for column in range(cells.row_len(row))
    }
    return formats, styles


def _of_ods(content: io.BytesIO, sheet: str, end: int) -> dict[Cell, str]:
    from defusedxml.ElementTree import iterparse

    shown: dict[Cell, str] = {}
    row = 0
    with zipfile.ZipFile(content) as book:
        is_chosen = False
        for event, part in iterparse(book.open("content.xml"), events=("start", "end")):
            if event == "start" and part.tag == f"{_TABLE}table":
                is_chosen = part.get(f"{_TABLE}name") == sheet
            elif event == "end" and part.tag == f"{_TABLE}table-row" and is_chosen and row < end:
                following = row + int(part.get(f"{_TABLE}number-rows-repeated", "1"))
                texts = _numbers_of(part)
                shown |= {
                    (number, column): text
                    for number in range(row, min(following, end))
                    for column, text in texts.items()
                }
                row = following
                part.clear()
    return shown


def _numbers_of(row: Any) -> dict[int, str]:
    texts: dict[int, str] = {}
    column = 0
    for cell in row:
        if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            continue
        following = column + int(cell.get(f"{_TABLE}number-columns-repeated", "1"))
        if cell.get(_VALUE_TYPE) in _NUMBERS:
            lines = ("".join(one.itertext()) for one in cell.iterfind(f"{_TEXT}p"))
            texts |= dict.fromkeys(range(column, min(following, _MAX_COLUMNS)), " ".join(lines))
        column = following
    return texts
