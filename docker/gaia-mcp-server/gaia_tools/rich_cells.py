"""Cells of an .xls file in which letters are raised or lowered: calamine gives 10 to the minus 3 as ``10-3``."""

import io
from typing import Any

from gaia_tools.superscripts import joined

_LEVELS = {1: 1, 2: -1}  # of xlrd's fonts


def with_scripts(content: io.BytesIO, sheet: str, rows: list[list[Any]]) -> list[list[Any]]:
    """The rows, with ``10^-3``; as they are where xlrd cannot read the file."""
    import xlrd

    content.seek(0)
    found = [list(row) for row in rows]
    try:
        workbook = xlrd.open_workbook(
            file_contents=content.read(), formatting_info=True, logfile=io.StringIO()
        )
        cells = workbook.sheet_by_name(sheet)
        for (row, column), runs in cells.rich_text_runlist_map.items():
            text = str(cells.cell_value(row, column))
            places = [0, *(place for place, _ in runs), len(text)]
            levels = [0, *(_LEVELS.get(workbook.font_list[font].escapement, 0) for _, font in runs)]
            if any(levels) and row < len(found) and column < len(found[row]):
                parts = zip(places, places[1:], levels, strict=False)
                found[row][column] = joined([(text[start:end], level) for start, end, level in parts])
    except Exception:  # damaged files end the library in many ways
        return rows
    return found
