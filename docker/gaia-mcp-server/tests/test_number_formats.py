"""What a sheet shows of a number stands behind the number where it is another text."""

import datetime
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
import xlwt
from gaia_tools.documents_csv import server
from odf.opendocument import OpenDocumentSpreadsheet
from odf.table import Table, TableCell, TableRow
from odf.text import P
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.drawing.image import Image

from tests.conftest import call, content, text
from tests.documents_made import picture, rewritten
from tests.strangers.files import FILES

_READ = "extract_csv_content"
_FORMATS = {
    "0%": (0.5, "0.5 [50%]"),
    '"$"#,##0.00': (1234.5, "1234.5 [$1,234.50]"),
    "_-* #,##0.00 €_-": (1234567, "1234567 [1,234,567.00 €]"),
    "0.00": (0.1234567, "0.1234567 [0.12]"),
    "#,##0": (12345678, "12345678"),
    "0.000": (1.5, "1.5"),
    "0.00E+00": (1e-7, "1e-07"),
    "00000": (42, "42 [00042]"),
    "0;(0)": (-5, "-5 [(5)]"),
    "# ?/?": (0.25, "0.25 [1/4]"),
    "[h]:mm:ss": (1.5, "1 day, 12:00:00 [36:00:00]"),
    '0 "<kg> & more"': (5, "5 [5 <kg> & more]"),
    "General": (0.1, "0.1"),
    "d mmm yy": (44927, "2023-01-01"),
}


def _xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    for row, (code, (value, _)) in enumerate(_FORMATS.items(), 3):
        book.active.cell(row, 2).value = value
        book.active.cell(row, 2).number_format = code
    book.save(path)


def _xls(path: Path) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("A")
    for row, (code, (value, _)) in enumerate(_FORMATS.items(), 2):
        sheet.write(row, 1, value, xlwt.easyxf(num_format_str=code))
    book.save(str(path))


@pytest.mark.parametrize("write, name", [(_xlsx, "a.xlsx"), (_xls, "a.xls")])
async def test_numbers_are_followed_by_what_the_sheet_shows(
    write: Callable[[Path], None], name: str, workspace: Path
) -> None:
    write(workspace / name)
    shown = text(await call(server, _READ, file_path=name, start_row=3))
    for row, (_, expected) in enumerate(_FORMATS.values(), 3):
        assert f"| {row} |  | {expected} |" in shown
    found = await content(server, _READ, file_path=name, output_format="json")
    assert found["content"][2] == [None, 0.5] and found["shown"]["B3"] == "50%"


def _row(*cells: tuple[str, str, int], repeated: int = 1) -> TableRow:
    row = TableRow(numberrowsrepeated=repeated)
    for kind, shown, times in cells:
        cell = TableCell(valuetype=kind, value="0.5", numbercolumnsrepeated=times) if kind else TableCell()
        cell.addElement(P(text=shown))
        row.addElement(cell)
    return row


async def test_an_open_document_has_what_it_shows(workspace: Path) -> None:
    document = OpenDocumentSpreadsheet()
    for name, shown in (("A", "no"), ("B", "50 %")):
        table = Table(name=name)
        table.addElement(_row(("", "x", 1), repeated=2))
        table.addElement(_row(("percentage", shown, 2), ("currency", "0,50 €", 1), ("float", "0.50", 1)))
        document.spreadsheet.addElement(table)
    document.save(str(workspace / "a.ods"))
    shown = text(await call(server, _READ, file_path="a.ods", sheet_name="B"))
    assert "| 3 | 0.5 [50 %] | 0.5 [50 %] | 0.5 [0,50 €] | 0.5 |" in shown


def _record(number: int, body: bytes) -> bytes:
    kind = bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])
    assert len(body) < 0x80
    return kind + bytes([len(body)]) + body


def _wide(words: str) -> bytes:
    return struct.pack("<I", len(words)) + words.encode("utf-16-le")


async def test_binary_sheets_have_formats_and_superscripts(workspace: Path) -> None:
    (base,) = [one for one in FILES if one.kind == ".xlsb"]
    path = base.package.copy(base.member, workspace)
    styles = [
        *(_record(615, struct.pack("<I", 1)), _record(44, struct.pack("<H", 164) + _wide('0.0" kg"'))),
        *(_record(616, b""), _record(611, struct.pack("<I", 2))),
        *(_record(43, struct.pack("<HHHH", 220, 0, 400, level)) for level in (0, 1)),
        *(_record(612, b""), _record(617, struct.pack("<I", 3))),
        *(_record(47, struct.pack("<HH", 0, number) + bytes(12)) for number in (0, 9, 164)),
        _record(618, b""),
    ]
    runs = struct.pack("<IHHHH", 2, 2, 1, 4, 0)
    item = _record(19, b"\1" + _wide("1020 m") + runs)
    cells = [
        _record(0, struct.pack("<I", 0) + bytes(20)),
        _record(5, struct.pack("<IId", 0, 1, 0.5)),
        _record(5, struct.pack("<IId", 1, 2, 2.5)),
        _record(7, struct.pack("<III", 2, 0, 0)),
    ]
    with zipfile.ZipFile(path) as book:
        (part,) = [name for name in book.namelist() if name.endswith("sheet1.bin")]
        whole = book.read(part)
    begin = whole.index(_record(145, b""))
    rewritten(path, "xl/styles.bin", b"".join(styles))
    rewritten(path, "xl/sharedStrings.bin", _record(159, struct.pack("<II", 1, 1)) + item + _record(160, b""))
    sheet = b"".join([_record(145, b""), *cells, _record(146, b"")])
    rewritten(path, part, whole[:begin] + sheet)
    shown = text(await call(server, _READ, file_path=path.name))
    assert "| 1 | 0.5 [50%] | 2.5 [2.5 kg] | 10^20 m |" in shown


async def test_dates_have_no_second_form(workspace: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append([datetime.date(2023, 5, 1), "text", None])
    book.save(workspace / "a.xlsx")
    found = await content(server, _READ, file_path="a.xlsx", output_format="json")
    assert found["content"] == [["2023-05-01", "text"]] and found["shown"] == {}


async def test_what_is_not_shown_is_said(workspace: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append([1, 2])
    book.active["A1"].comment = Comment("estimated", "Ann")
    chart = BarChart()
    chart.add_data(Reference(book.active, min_col=1, min_row=1))
    book.active.add_chart(chart, "D4")
    book.active.add_image(Image(picture()), "F4")
    book.save(workspace / "a.xlsx")
    shown = text(await call(server, _READ, file_path="a.xlsx"))
    assert "[In the file and not shown: 1 chart, 1 picture.]" in shown
    assert "Some cells have comments: include_formatting=true shows them." in shown
