"""Cells whose value is an error, such as ``#DIV/0!``: calamine gives them as empty, which they are not."""

import io
import zipfile
from typing import Any

_ERROR = b't="e"'


def with_errors(content: io.BytesIO, kind: str, sheet: str, rows: list[list[Any]]) -> list[list[Any]]:
    """The rows, with the errors of an Excel file where they stand; as they are where the libraries cannot read it."""
    if not any(value is None for row in rows for value in row):
        return rows
    content.seek(0)
    read = _of_xls if kind == "xls" else _of_xlsx
    try:
        errors = read(content, sheet)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, AssertionError):
        return rows
    found = [list(row) for row in rows]
    for row, column, error in errors:
        if row < len(found):
            found[row] += [None] * (column + 1 - len(found[row]))
            found[row][column] = error
    return found


def _of_xlsx(content: io.BytesIO, sheet: str) -> list[tuple[int, int, str]]:
    import openpyxl

    with zipfile.ZipFile(content) as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        if not any(_ERROR in archive.read(name) for name in sheets if name.endswith(".xml")):
            return []
    content.seek(0)
    workbook = openpyxl.load_workbook(content, read_only=True, data_only=True, keep_links=False)
    return [
        (one.row - 1, one.column - 1, str(one.value))
        for row in workbook[sheet].iter_rows()
        for one in row
        if getattr(one, "data_type", "") == "e"
    ]


def _of_xls(content: io.BytesIO, sheet: str) -> list[tuple[int, int, str]]:
    import xlrd

    try:
        workbook = xlrd.open_workbook(file_contents=content.read(), on_demand=True, logfile=io.StringIO())
        cells = workbook.sheet_by_name(sheet)
    except (xlrd.XLRDError, xlrd.compdoc.CompDocError):
        return []
    return [
        (row, column, xlrd.error_text_from_code[cells.cell_value(row, column)])
        for row in range(cells.nrows)
        for column, kind in enumerate(cells.row_types(row))
        if kind == xlrd.XL_CELL_ERROR
    ]
