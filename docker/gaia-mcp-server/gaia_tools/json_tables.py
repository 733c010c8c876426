"""JSON as rows, where it is a table: objects of the same kind, rows, columns, or one object."""

import json
from typing import Any

from mcp.server.fastmcp.exceptions import ToolError

_OTHER = "extract_text_content shows it as it is written, and run_python_code can take it apart."


def json_rows(text: str, name: str) -> list[list[Any]] | None:
    """The rows of JSON or JSON lines, the names of columns first; None where the text is not JSON."""
    beginning = text.lstrip("\ufeff \t\r\n")[:1]
    is_named_so = name.lower().endswith((".json", ".jsonl", ".ndjson", ".geojson"))
    if beginning not in ("{", "["):
        if is_named_so:
            raise ToolError(f"{name} is not JSON that is a table. {_OTHER}")
        return None
    try:
        found = json.loads(text.lstrip("\ufeff"), parse_constant=str)
    except ValueError as error:
        found = _lines(text)
        if found is None and is_named_so:
            raise ToolError(f"{name} is damaged JSON: {error}. {_OTHER}") from error
    if found is None:
        return None
    rows = _rows(found)
    if rows is None:
        raise ToolError(f"{name} is JSON and not a table: {_shape(found)}. {_OTHER}")
    return rows


def _lines(text: str) -> list[Any] | None:
    try:
        # Not str.splitlines, which ends lines at characters that JSON may have within a text.
        found = [
            json.loads(line, parse_constant=str) for line in text.lstrip("\ufeff").split("\n") if line.strip()
        ]
    except ValueError:
        return None
    return found if all(isinstance(one, dict | list) for one in found) else None


def _rows(found: Any) -> list[list[Any]] | None:
    if isinstance(found, list) and found:
        if all(isinstance(one, dict) for one in found):
            names = list(dict.fromkeys(name for one in found for name in one))
            return [names, *([_value(one.get(name)) for name in names] for one in found)]
        if all(isinstance(one, list) for one in found):
            return [[_value(value) for value in one] for one in found]
    if not isinstance(found, dict) or not found:
        return None
    values = list(found.values())
    if all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        if len(values) == 1 and (rows := _rows(values[0])):
            return rows
        return [list(found), *([_value(value) for value in row] for row in zip(*values, strict=True))]
    tables = [value for value in values if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(tables) == 1:
        return _rows(tables[0])
    if any(isinstance(value, dict | list) for value in values):
        return None
    return [list(found), values]


def _value(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _shape(found: Any) -> str:
    if isinstance(found, dict):
        names = ", ".join(map(str, list(found)[:10]))
        return f"an object with {names or 'nothing'}" + (", ..." if len(found) > 10 else "")
    return "a list of single or mixed values" if found else "an empty list"
