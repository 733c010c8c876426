"""Tables as Markdown."""

import datetime
from collections.abc import Sequence
from typing import Any


def table(rows: Sequence[Sequence[Any]]) -> str:
    width = max(map(len, rows), default=0)
    lines = [
        "| "
        + " | ".join(cell(row[i]).replace("|", "\\|") if i < len(row) else "" for i in range(width))
        + " |"
        for row in rows
    ]
    return "\n".join([*lines[:1], "|" + " --- |" * width, *lines[1:]])


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return " ".join(str(value).split())


def letters(column: int) -> str:
    """``A`` for 0, ``AA`` for 26. (openpyxl says it too, and takes a second to import.)"""
    name = ""
    number = column + 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name
