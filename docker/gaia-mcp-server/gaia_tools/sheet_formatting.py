"""What an .xlsx sheet says beside its values: colours, formulas, comments and links.

A map drawn with coloured cells has no values at all.
"""

import colorsys
import io
from typing import Any
from xml.etree.ElementTree import Element

from mcp.server.fastmcp.exceptions import ToolError

_MAX_ROWS = 3000
_MAX_COLUMNS = 500
_MAX_LISTED = 500
# ECMA-376, 20.1.6.2: the colours of a theme in the order of its file, of which the sheet swaps the first two pairs.
_SWAPPED = {0: 1, 1: 0, 2: 3, 3: 2}


def has_colours(content: io.BytesIO) -> bool:
    import zipfile

    from defusedxml.ElementTree import fromstring

    try:
        with zipfile.ZipFile(content) as archive:
            styles = fromstring(archive.read("xl/styles.xml"))
    except (KeyError, zipfile.BadZipFile, SyntaxError):
        return False
    return len(styles.findall(".//{*}fills/{*}fill")) > 2


def formatting(content: io.BytesIO, sheet: str, first: int, last: int | None) -> dict[str, dict[str, Any]]:
    """Of rows ``first`` to ``last`` (None: to the end): cells by their colour, formulas, comments and links.

    Colours, of the cell and of its letters, are ``#RRGGBB``; cells are ranges within a row, such as ``B2:F2``.
    """
    import openpyxl

    content.seek(0)
    try:
        workbook = openpyxl.load_workbook(content)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise ToolError(
            f"The formatting of this file cannot be read: {error}. Leave out include_formatting."
        ) from error
    theme = _theme(workbook.loaded_theme)
    found: dict[str, dict[str, Any]] = {
        "fill_colours": {},
        "letter_colours": {},
        "formulas": {},
        "comments": {},
        "links": {},
    }
    cells = workbook[sheet]
    last = min(cells.max_row if last is None else last, first + _MAX_ROWS)
    for row in cells.iter_rows(min_row=first, max_row=last, max_col=min(cells.max_column, _MAX_COLUMNS)):
        for one in row:
            if one.has_style:
                fill = one.fill
                if fill and fill.fill_type and (colour := _colour(fill.fgColor, theme)):
                    found["fill_colours"].setdefault(colour, []).append((one.row, one.column))
                letter = _colour(one.font.color, theme) if one.font and one.value is not None else None
                if letter and letter != "#000000":
                    found["letter_colours"].setdefault(letter, []).append((one.row, one.column))
            if one.data_type == "f":
                found["formulas"][one.coordinate] = str(getattr(one.value, "text", one.value))
            if one.comment:
                found["comments"][one.coordinate] = one.comment.text
            if one.hyperlink and one.hyperlink.target:
                found["links"][one.coordinate] = one.hyperlink.target
    for colours in (found["fill_colours"], found["letter_colours"]):
        colours.update({colour: _ranges(places) for colour, places in colours.items()})
    return {what: _first(where) for what, where in found.items() if where}


def _first(where: dict[str, Any]) -> dict[str, Any]:
    listed = dict(list(where.items())[:_MAX_LISTED])
    if len(listed) < len(where):
        listed["..."] = f"{len(where) - len(listed)} more: choose rows with start_row and max_rows"
    return listed


def _ranges(places: list[tuple[int, int]]) -> list[str]:
    from openpyxl.utils import get_column_letter

    runs: list[list[int]] = []
    for row, column in places:
        if runs and runs[-1][0] == row and runs[-1][2] == column - 1:
            runs[-1][2] = column
        else:
            runs.append([row, column, column])
    named = [
        f"{get_column_letter(a)}{row}" + (f":{get_column_letter(b)}{row}" if b > a else "")
        for row, a, b in runs
    ]
    if len(named) > _MAX_LISTED:
        named[_MAX_LISTED:] = [
            f"... {len(named) - _MAX_LISTED} more: choose rows with start_row and max_rows"
        ]
    return named


def _theme(xml: bytes | None) -> list[str]:
    from defusedxml.ElementTree import fromstring

    if not xml:
        return []
    scheme: Element | None = fromstring(xml).find(".//{*}clrScheme")
    colours = [] if scheme is None else [next(iter(one), None) for one in scheme]
    return ["" if one is None else one.get("lastClr") or one.get("val") or "" for one in colours]


def _colour(colour: Any, theme: list[str]) -> str | None:
    from openpyxl.styles.colors import COLOR_INDEX

    if colour is None:
        return None
    if colour.type == "rgb" and isinstance(colour.rgb, str):
        value = colour.rgb
    elif colour.type == "indexed" and 0 <= colour.indexed < len(COLOR_INDEX):
        value = COLOR_INDEX[colour.indexed]
    elif colour.type == "theme":
        place = _SWAPPED.get(colour.theme, colour.theme)
        value = theme[place] if 0 <= place < len(theme) else ""
    else:
        return None
    try:
        red, green, blue = bytes.fromhex(value[-6:])
    except ValueError:
        return None
    if colour.tint:
        # ECMA-376, 18.8.19: a tint lightens or darkens, in HLS.
        hue, light, saturation = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
        light = light * (1 + colour.tint) if colour.tint < 0 else light + (1 - light) * colour.tint
        red, green, blue = (
            round(255 * part) for part in colorsys.hls_to_rgb(hue, min(light, 1.0), saturation)
        )
    return f"#{red:02X}{green:02X}{blue:02X}"
