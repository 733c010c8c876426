"""Tables as they are in files: delimited text and spreadsheets, read to rows of values."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import binary_sheets, office_xml, open_document
from gaia_tools.charsets import decode
from gaia_tools.delimited import DELIMITERS, NAMES_OF_RUNS, delimited_rows, sniffed
from gaia_tools.json_tables import json_rows
from gaia_tools.rich_cells import with_scripts
from gaia_tools.sheet_errors import with_errors
from gaia_tools.tables import letters
from gaia_tools.zips import checked, decrypted


@dataclass(frozen=True)
class Sheet:
    """One table; its rows may differ in length, and ``facts`` is what else is known of it, as JSON."""

    rows: list[list[Any]]
    facts: dict[str, Any]

    @property
    def columns(self) -> int:
        return max(map(len, self.rows), default=0)


def read_text(path: Path, encoding: str = "auto", delimiter: str = "auto") -> Sheet:
    decoded = decode(path.read_bytes(), encoding, path.name)
    facts: dict[str, Any] = {
        "format": "text",
        "encoding": decoded.encoding,
        "other_encodings": list(decoded.alternatives),
        "delimiter": None,
        "note": "",
    }
    if delimiter == "auto" and (rows := json_rows(decoded.text, path.name)) is not None:
        return Sheet(rows, facts | {"format": "json"})
    if delimiter == "auto":
        delimiter = "\t" if path.suffix.lower() == ".tsv" else sniffed(decoded.text)
    delimiter = DELIMITERS.get(delimiter.lower(), delimiter)
    if delimiter not in DELIMITERS.values() and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ToolError(
            f"delimiter is {delimiter!r}; it has to be one character, such as ',', or one of: {', '.join(DELIMITERS)}."
        )
    rows, facts["note"] = delimited_rows(decoded.text, delimiter)
    return Sheet(rows, facts | {"delimiter": NAMES_OF_RUNS.get(delimiter, delimiter)})


def read_spreadsheet(path: Path, kind: str, name: str = "", password: str = "") -> tuple[Sheet, io.BytesIO]:
    from python_calamine import (
        CalamineError,
        CalamineWorkbook,
        PasswordError,
        SheetTypeEnum,
        SheetVisibleEnum,
    )

    content = io.BytesIO(path.read_bytes())
    if kind == "encrypted" or (kind == "xls" and password):
        content = decrypted(content, path.name, password)
    if kind != "xls":
        content = checked(content, path.name)
    try:
        if kind == "ods":
            content = open_document.readable_tables(content)
        elif kind != "xls":
            content = office_xml.readable_sheets(content)
        workbook = CalamineWorkbook.from_filelike(content)
        sheets = [
            {
                "name": one.name,
                "visible": one.visible == SheetVisibleEnum.Visible,
                "kind": "sheet" if one.typ == SheetTypeEnum.WorkSheet else str(one.typ).rpartition(".")[2],
            }
            for one in workbook.sheets_metadata
        ]
        names = [str(one["name"]) for one in sheets]
        chosen = _chosen(names, name, path.name)
        sheet = workbook.get_sheet_by_name(chosen)
        # Rows come from the first one on, columns from the first that has a value.
        left = [None] * (sheet.start[1] if sheet.start else 0)
        rows = [left + [None if value == "" else value for value in row] for row in sheet.iter_rows()]
        merged = sheet.merged_cell_ranges or []
        if kind != "ods":
            rows = with_errors(content, kind, chosen, rows)
        if kind == "xls":
            rows = with_scripts(content, chosen, rows)
        elif kind != "ods":
            rows = binary_sheets.with_scripts(content, chosen, rows)
    except PasswordError as error:
        raise ToolError(f"{path.name} is protected with a password. Give it with password=...") from error
    except (CalamineError, OSError, ValueError, SyntaxError) as error:
        raise ToolError(f"{path.name} is damaged, or no spreadsheet that can be read: {error}.") from error
    content.seek(0)
    facts = {
        "format": kind,
        "sheet": chosen,
        "sheets": sheets,
        "merged": [f"{address(*first)}:{address(*last)}" for first, last in merged],
    }
    return Sheet(rows, facts), content


def address(row: int, column: int) -> str:
    """``B3`` for row 2 and column 1, both counted from 0."""
    return f"{letters(column)}{row + 1}"


def _chosen(names: list[str], name: str, file: str) -> str:
    if not names:
        raise ToolError(f"{file} has no sheets.")
    if not name:
        return names[0]
    for one in names:
        if one.strip().lower() == name.strip().lower():
            return one
    raise ToolError(f"{file} has no sheet {name!r}; it has: {', '.join(names)}.")
