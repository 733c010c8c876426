"""The kinds of documents: how each shows a table, and what this machine needs to make it."""

import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aworld_train.dataset.made_files import packages
from aworld_train.dataset.made_files.tables import Table, Value, make_table
from aworld_train.errors import DatasetError

PICTURES = ("png", "jpg")
SPEECH = "wav"
ENCODINGS = (
    *(("utf-16", "japanese"), ("utf-16-be", "greek"), ("utf-8-sig", "japanese"), ("iso8859-7", "greek")),
    *(("koi8-r", "russian"), ("cp866", "russian"), ("iso8859-5", "russian")),
)
"""Encodings of text files, each with the script of the places in it, which a few lines are enough to tell apart."""

MIN_ROWS, MAX_ROWS = 4, 24
_PDF_LINES = 12
_ESCAPED = str.maketrans({"(": r"\(", ")": r"\)"})
_FONT_PIXELS = 40
_MARGIN_PIXELS = 40
_DIGITS = {"0": "zero", "1": "one", "3": "three", "5": "five", "6": "six", "7": "seven"}
_VOICE = "rms"
"""Of flite's voices the one that PocketSphinx understands best, as it does the six digits and not the other four."""

_VOICE_SECONDS = 60


class CannotMake(Exception):
    """This machine lacks what documents of a kind are made with; the message says what."""


class Kind(NamedTuple):
    """How a kind of document shows a table of so many rows at most."""

    write: Callable[[Table], bytes]
    max_rows: int = MAX_ROWS


def make_document(rng: Random, kind: str, max_rows: int, **options: Any) -> tuple[Table, bytes]:
    """A table and the document that shows it; ``options`` are those of `make_table`."""
    count = rng.randint(MIN_ROWS, min(max_rows, TABLES[kind].max_rows))
    if kind == "txt" and not options.get("groups"):
        encoding, script = rng.choice(ENCODINGS)
        table = make_table(rng, count=count, script=script, **options)
        return table, _lines(table).encode(encoding)
    table = make_table(rng, count=count, **options)
    return table, TABLES[kind].write(table)


def delimited(table: Table, separator: str) -> bytes:
    rows = (separator.join(map(str, row)) for row in (table.header, *table.rows))
    return "".join(f"{row}\n" for row in rows).encode()


def html(table: Table) -> bytes:
    head = "".join(f"<th>{name}</th>" for name in table.header)
    rows = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in row)}</tr>\n" for row in table.rows)
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{table.title}</title>\n<h1>{table.title}</h1>\n"
        f"<p>Find the list below.</p>\n<table>\n<tr>{head}</tr>\n{rows}</table>\n</html>\n"
    ).encode()


def json_text(table: Table) -> bytes:
    def plain(value: Value) -> str | int | float:
        return float(value) if isinstance(value, Decimal) else value

    items = [dict(zip(table.header, map(plain, row), strict=True)) for row in table.rows]
    return (
        json.dumps({"title": table.title, table.topic.things: items}, indent=1, ensure_ascii=False) + "\n"
    ).encode()


def xml(table: Table) -> bytes:
    names = ["name", *(label.partition(" ")[0] for label in table.header[1:])]
    attributes = (
        " ".join(f'{name}="{value}"' for name, value in zip(names, row, strict=True)) for row in table.rows
    )
    items = "".join(f"  <{table.topic.thing} {text}/>\n" for text in attributes)
    things = table.topic.things
    return f'<?xml version="1.0"?>\n<{things} title="{table.title}">\n{items}</{things}>\n'.encode()


def pdf(lines: Sequence[str]) -> bytes:
    """Lines of ASCII on pages of A4, in Helvetica, which every reader has."""
    pages = [lines[start : start + _PDF_LINES] for start in range(0, len(lines), _PDF_LINES)]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        font,
    ]
    for page in pages:
        shown = "".join(f"({line.translate(_ESCAPED)}) ' " for line in page)
        stream = f"BT /F1 12 Tf 30 TL 60 780 Td {shown}ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {len(objects) + 2} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    content, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n"
    entries = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{content}xref\n0 {size}\n0000000000 65535 f \n{entries}"
        f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    ).encode()


def picture(lines: Sequence[str], kind: str) -> bytes:
    if find_spec("PIL") is None:
        raise CannotMake("Pillow, which draws pictures, is not installed: pip install pillow")
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(_FONT_PIXELS)
    text = "\n".join(lines)
    _, _, right, bottom = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox(
        (0, 0), text, font, spacing=24
    )
    image = Image.new("L", (int(right) + 2 * _MARGIN_PIXELS, int(bottom) + 2 * _MARGIN_PIXELS), 255)
    ImageDraw.Draw(image).multiline_text((_MARGIN_PIXELS, _MARGIN_PIXELS), text, 0, font, spacing=24)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG" if kind == "jpg" else "PNG", **({"quality": 92} if kind == "jpg" else {}))
    return buffer.getvalue()


def can_say(number: object) -> bool:
    return set(str(number)) <= _DIGITS.keys()


def speech(number: str) -> bytes:
    if shutil.which("flite") is None:
        raise CannotMake("flite, which speaks, is not installed: apt-get install flite")
    text = " ".join(_DIGITS[digit] for digit in number)
    with tempfile.TemporaryDirectory(prefix="speech-") as folder:
        path = Path(folder, "speech.wav")
        try:
            subprocess.run(
                ["flite", "-voice", _VOICE, "-t", text, "-o", str(path)],
                check=True,
                capture_output=True,
                timeout=_VOICE_SECONDS,
            )
            return path.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise DatasetError(
                f"flite cannot speak: {error}. Leave recordings out, with --tag of others."
            ) from error


def _titled(table: Table) -> list[str]:
    return [table.title, *table.sentences]


def _lines(table: Table) -> str:
    return "".join(f"{line}\n" for line in _titled(table))


TABLES = {
    "csv": Kind(partial(delimited, separator=",")),
    "tsv": Kind(partial(delimited, separator="\t")),
    "xlsx": Kind(packages.xlsx),
    "ods": Kind(packages.ods),
    "docx": Kind(packages.docx),
    "pptx": Kind(packages.pptx),
    "pdf": Kind(lambda table: pdf(_titled(table))),
    "txt": Kind(lambda table: _lines(table).encode("utf-16")),
    "html": Kind(html),
    "json": Kind(json_text),
    "xml": Kind(xml),
    "epub": Kind(packages.epub),
    "png": Kind(lambda table: picture(_titled(table), "png"), max_rows=6),
    "jpg": Kind(lambda table: picture(_titled(table), "jpg"), max_rows=6),
}
