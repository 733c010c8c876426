"""documents-csv-server: tables, as delimited text or as spreadsheets.

Values are shown as they are in the file, followed by what a sheet shows of a number: ``0.5 [50%]``.
"""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import number_formats
from gaia_tools.charsets import doubt
from gaia_tools.column_statistics import draw, summaries
from gaia_tools.documents import FilePath, Format, Password, formats, some
from gaia_tools.files import readable, shown, writable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.results import MAX_CHARACTERS, answer
from gaia_tools.sheet_formatting import formatting, has_colours
from gaia_tools.sheets import Sheet, address, read_spreadsheet, read_text
from gaia_tools.tables import cell, letters, table

server = FastMCP("documents-csv-server", log_level="WARNING")
_FORMATS = {
    ".csv .tsv .txt": "text with a delimiter, or with columns between spaces",
    ".json .jsonl": "JSON that is a table: a list of objects or rows, columns, or one object",
    ".xlsx .xlsm .xlsb": "Excel",
    ".xls": "Excel of before 2007; charts, pictures and comments are not shown",
    ".ods": "OpenDocument spreadsheet; comments are not shown",
}
_NOT_SHOWN = {
    "chart": r"xl/charts/chart\d*\.xml",
    "picture": r"(xl/media|Pictures)/[^/]+",
    "chart or other object": r"Object \d+/content\.xml",
    "embedded file": r"xl/embeddings/[^/]+",
    "comment file": r"xl/comments\d*\.bin",
}
_COMMENTS = re.compile(r"xl/(comments|threadedComments)[^.]*\.xml")
_MAX_BYTES = 100 << 20
_SECONDS = 110
_MEGABYTES = 2048
_MAX_CELL_CHARS = 2000


@server.tool()
async def extract_csv_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    max_rows: Annotated[
        int | None, Field(description="Most rows to return; without it, as many as fit.", ge=1)
    ] = None,
    include_statistics: Annotated[
        bool,
        Field(
            description="Say of each column how many values it has, and its least, greatest, mean, median, sum."
        ),
    ] = False,
    generate_visualizations: Annotated[
        bool, Field(description="Draw histograms of the columns of numbers into a PNG in the workspace.")
    ] = False,
    encoding: Annotated[str, Field(description="Of delimited text; 'auto' finds out.")] = "auto",
    delimiter: Annotated[
        str,
        Field(
            description="Of delimited text: a character, 'tab', 'space', or 'spaces' for runs; 'auto' finds out."
        ),
    ] = "auto",
    sheet_name: Annotated[
        str, Field(description="Sheet of a spreadsheet; without it, the first. All are named in the result.")
    ] = "",
    start_row: Annotated[
        int, Field(description="First row to return, counted from 1, to read on after a part.", ge=1)
    ] = 1,
    include_formatting: Annotated[
        bool,
        Field(
            description="Of .xlsx: also the colours of cells and letters, formulas, comments and links, where they are."
        ),
    ] = False,
    password: Password = "",
) -> CallToolResult:
    """Read a table from CSV, TSV, JSON, Excel or OpenDocument files: rows, sheets, merged cells, statistics."""
    path = readable(file_path, _MAX_BYTES)
    drawing = writable(f"{path.stem}_charts.png", overwrite=True) if generate_visualizations else None
    text, found = await isolated(
        _read,
        path,
        output_format == "text",
        lambda: _table(path, encoding, delimiter, sheet_name, password),
        (start_row, max_rows),
        include_statistics,
        include_formatting,
        drawing,
        seconds=_SECONDS,
        megabytes=_MEGABYTES,
    )
    return answer(text, found, output_format)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as tables."""
    return formats(_FORMATS)


def _table(
    path: Path, encoding: str, delimiter: str, sheet_name: str, password: str
) -> tuple[Sheet, io.BytesIO | None]:
    kind = expect(path, "text", "xlsx", "xls", "ods", "encrypted")
    if kind != "text":
        return read_spreadsheet(path, kind, sheet_name, password)
    if sheet_name:
        raise ToolError(f"{path.name} is delimited text and has no sheets: leave out sheet_name.")
    return read_text(path, encoding, delimiter), None


def _read(
    path: Path,
    bare: bool,
    read: Callable[[], tuple[Sheet, io.BytesIO | None]],
    window: tuple[int, int | None],
    include_statistics: bool,
    include_formatting: bool,
    drawing: Path | None,
) -> tuple[str, dict[str, Any]]:
    sheet, workbook = read()
    first, most = window
    end = len(sheet.rows)
    if first > max(end, 1):
        raise ToolError(f"start_row is {first}; the last row of {path.name} is {end}.")
    rows = _that_fit(sheet.rows, first, most)
    following = first + len(rows) if first + len(rows) <= end else None
    found: dict[str, Any] = {
        "file": str(path),
        **sheet.facts,
        "rows": end,
        "columns": sheet.columns,
        "first_row": first,
        "next_start_row": following,
        "content": rows,
    }
    is_excel = workbook is not None and sheet.facts["format"] in ("xlsx", "encrypted")
    if include_formatting and not is_excel:
        raise ToolError(f"Of {path.name}, formatting cannot be read: only that of .xlsx can.")
    displayed: dict[number_formats.Cell, str] = {}
    if workbook is not None:
        kind = sheet.facts["format"]
        stored = sheet.rows[first - 1 : first - 1 + len(rows)]
        displayed = number_formats.as_shown(workbook, kind, sheet.facts["sheet"], stored, first - 1)
        found["shown"] = {address(*place): text for place, text in displayed.items()}
        workbook.seek(0)
    if workbook is not None and sheet.facts["format"] != "xls":
        with zipfile.ZipFile(workbook) as package:
            names = package.namelist()
        counts = {
            what: sum(map(bool, map(re.compile(one).fullmatch, names))) for what, one in _NOT_SHOWN.items()
        }
        found["not_shown"] = [some(count, what) for what, count in counts.items() if count]
        found["has_comments"] = any(map(_COMMENTS.fullmatch, names))
        workbook.seek(0)
    if workbook is not None and is_excel:
        found["has_colours"] = has_colours(workbook)
        if include_formatting:
            found["formatting"] = formatting(workbook, found["sheet"], first, following and following - 1)
    if include_statistics:
        found["statistics"] = summaries(sheet.rows)
    if drawing is not None:
        found["visualizations"] = [shown(drawing)] if draw(sheet.rows, drawing) else []
    written = [
        [_with_shown(value, displayed.get((row, column), "")) for column, value in enumerate(values)]
        for row, values in enumerate(rows, first - 1)
    ]
    if bare:
        return "\n".join("\t".join(map(cell, row)) for row in written) + _more(found), found
    return _written(path, sheet, found, written), found


def _with_shown(value: Any, shown: str) -> Any:
    return f"{cell(value)} [{shown}]" if shown else value


def _that_fit(rows: list[list[Any]], first: int, most: int | None) -> list[list[Any]]:
    """The rows from ``first`` on that an answer has room for, one at least, as JSON."""
    fitting: list[list[Any]] = []
    room = MAX_CHARACTERS
    for row in rows[first - 1 : None if most is None else first - 1 + most]:
        values = [_plain(value) for value in row]
        room -= sum(len(str(value)) + 3 for value in values)
        if fitting and room < 0:
            break
        fitting.append(values)
    return fitting


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else cell(value)
    if len(text) > _MAX_CELL_CHARS:
        return f"{text[:_MAX_CELL_CHARS]}[... {len(text) - _MAX_CELL_CHARS} characters left out ...]"
    return text


def _written(path: Path, sheet: Sheet, found: dict[str, Any], rows: list[list[Any]]) -> str:
    parts = [_heading(path, found), _grid(sheet, found["first_row"], rows) + _more(found)]
    if found.get("shown"):
        parts.append("[0.5 [50%]: the number that is stored, and what the sheet shows.]")
    if found.get("merged"):
        parts.append(f"Merged cells (the value is in the first): {', '.join(found['merged'])}")
    if found.get("not_shown"):
        parts.append(f"[In the file and not shown: {', '.join(found['not_shown'])}.]")
    if found.get("has_comments") and "formatting" not in found:
        parts.append("Some cells have comments: include_formatting=true shows them.")
    if found.get("has_colours") and "formatting" not in found:
        parts.append("Some cells are coloured: include_formatting=true says which.")
    if "formatting" in found:
        parts += [
            f"{what.replace('_', ' ')}: {_listed(where)}" for what, where in found["formatting"].items()
        ]
    if "statistics" in found:
        parts.append(_statistics(found["statistics"]))
    if "visualizations" in found:
        names = ", ".join(found["visualizations"]) or "none, as no column has numbers"
        parts.append(f"Histograms: {names}")
    return "\n\n".join(parts)


def _heading(path: Path, found: dict[str, Any]) -> str:
    size = f"{some(found['rows'], 'row')}, {some(found['columns'], 'column')}"
    if "sheet" not in found:
        note = f"; {found['note']}" if found["note"] else ""
        encoding = doubt(found["encoding"], found["other_encodings"])
        form = "JSON" if found["format"] == "json" else f"delimiter {found['delimiter']!r}"
        return f"{path.name}: {size}, {encoding}, {form}{note}"
    sheets = ", ".join(
        one["name"]
        + ("" if one["visible"] else " (hidden)")
        + ("" if one["kind"] == "sheet" else f" ({one['kind']})")
        for one in found["sheets"]
    )
    return f"{path.name}: {some(len(found['sheets']), 'sheet')}: {sheets}\n\nSheet {found['sheet']}: {size}"


def _more(found: dict[str, Any]) -> str:
    following = found["next_start_row"]
    if following is None:
        return ""
    first, end = found["first_row"], found["rows"]
    return f"\n[Rows {first} to {following - 1} of {end}: ask again with start_row={following} for more.]"


def _grid(sheet: Sheet, first: int, rows: list[list[Any]]) -> str:
    if not rows:
        return "No cell has a value."
    if "sheet" in sheet.facts:
        head: list[Any] = ["", *map(letters, range(sheet.columns))]
        body = [[first + number, *row] for number, row in enumerate(rows)]
    else:
        head = sheet.rows[0]
        body = rows[1:] if first == 1 else rows
    return table([head, *body])


def _listed(where: dict[str, Any]) -> str:
    if not where:
        return "none"
    return "".join(
        f"\n- {what}: {', '.join(cells) if isinstance(cells, list) else cell(cells)}"
        for what, cells in where.items()
    )


def _statistics(columns: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for column in columns for name in column))
    return table([names, *([column.get(name) for name in names] for column in columns)])
