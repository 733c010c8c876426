"""Text with delimiters as rows: characters, tabs, or runs of spaces, with quotation marks respected."""

import csv
import io
import itertools
import re
from collections.abc import Iterator

from mcp.server.fastmcp.exceptions import ToolError

# Runs are of one or more spaces, or, where values have spaces themselves, of two or more.
_RUN, _WIDE_RUN = " +", "  +"
DELIMITERS = {
    **{"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "pipe": "|", "space": " "},
    **{"spaces": _RUN, "two or more spaces": _WIDE_RUN},
}
NAMES_OF_RUNS = {_RUN: "spaces", _WIDE_RUN: "two or more spaces"}
_CHARACTERS = (",", "\t", ";", "|")
_SPACES = (" ", _WIDE_RUN, _RUN)
_SNIFFED_LINES = 50
_MAX_FIELD_CHARS = 1 << 20
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?%?", re.IGNORECASE)


def sniffed(text: str) -> str:
    """The delimiter with which most of the first lines have the same number of fields, more than one.

    Spaces count only where no other character divides nearly all lines alike, and where what they divide has quotation
    marks or numbers in columns.
    """
    sample = "".join(itertools.islice(io.StringIO(text[: 1 << 16]), _SNIFFED_LINES))
    best, most = ",", 0.0
    for delimiter in _CHARACTERS:
        share = _alike(_rows(sample, delimiter, csv.QUOTE_MINIMAL))
        if share > most:
            best, most = delimiter, share
    if most >= 0.9:
        return best
    for delimiter in _SPACES:
        rows = [row for row in _rows(sample, delimiter, csv.QUOTE_MINIMAL) if row]
        if len(rows) > 1 and _alike(rows) > max(0.9, most) and _has_columns(sample, rows):
            return delimiter
    return best


def delimited_rows(text: str, delimiter: str) -> tuple[list[list[str]], str]:
    """The rows of a text, and a note where its quotation marks had to be taken as they are."""
    try:
        return _rows(text, delimiter, csv.QUOTE_MINIMAL), ""
    except csv.Error:
        note = "quotation marks in it do not match: they were taken as ordinary characters"
        try:
            return _rows(text, delimiter, csv.QUOTE_NONE), note
        except csv.Error as error:
            raise ToolError(f"It is not a table: {error}. extract_text_content reads any text.") from error


def _alike(rows: list[list[str]]) -> float:
    counts = [len(row) for row in rows if row]
    usual = max(set(counts), key=counts.count, default=1)
    return counts.count(usual) / len(counts) if usual > 1 else 0.0


def _has_columns(sample: str, rows: list[list[str]]) -> bool:
    if re.search(r'(^|\s)"[^"\n]+"(\s|$)', sample):
        return True
    columns = itertools.zip_longest(*rows[1:], fillvalue="")
    return any(sum(map(bool, map(_NUMBER.fullmatch, column))) >= 0.8 * len(column) for column in columns)


def _rows(text: str, delimiter: str, quoting: int) -> list[list[str]]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    lines: Iterator[str] = io.StringIO(text, newline="")
    if delimiter == _WIDE_RUN:
        return [[_unquoted(one) for one in re.split(r" {2,}", line.strip())] for line in text.splitlines()]
    if delimiter == _RUN:
        lines = (line.strip(" \r\n") for line in lines)
    reader = csv.reader(lines, delimiter=delimiter[0], quoting=quoting, skipinitialspace=delimiter != " ")  # type: ignore[arg-type]
    return list(reader)


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1].replace('""', '"') if is_quoted else value
