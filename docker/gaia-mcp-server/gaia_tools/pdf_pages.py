"""A page of a PDF file as Markdown, or its picture."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaia_tools.tables import table

if TYPE_CHECKING:
    from pdfplumber.page import Page
    from pdfplumber.table import Table
    from PIL.Image import Image

_SPACE = 0.15  # of the letters' size; closer ones are of one word
_DPI = 300
_MAX_PIXELS = 4000  # of a side: pages may claim to be kilometres long
_MAX_LINES = 5000  # drawings have more, and tables are not looked for among them
_LEAST_FILLED = 0.3
_LONGEST_HEADING = 200
# How much larger than most of the page a heading of each level is.
_HEADINGS = ((1.6, "# "), (1.3, "## "), (1.12, "### "))
_LITTLE = 8  # characters: less is no text but a number of the page or a stamp
_MANY_CURVES = 20  # letters drawn as outlines have more

Word = dict[str, Any]


def page_markdown(page: "Page") -> str:
    """Text with headings, and tables where they stand, in the order of the file."""
    words = page.extract_words(use_text_flow=True, extra_attrs=["size"], x_tolerance_ratio=_SPACE)
    sizes: Counter[float] = Counter()
    for word in words:
        sizes[round(word["size"], 1)] += len(word["text"])
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    tables = _tables(page)
    written: set[int] = set()
    blocks: list[str] = []
    for place, run in itertools.groupby(words, key=lambda word: _place(word, tables)):
        if place is None:
            blocks.append(_paragraphs(list(run), usual))
        elif place not in written:
            written.add(place)
            rows = tables[place].extract(x_tolerance_ratio=_SPACE)
            blocks.append(table([[cell or "" for cell in row] for row in rows]))
    return "\n\n".join(blocks).strip()


def needs_ocr(page: "Page", text: str) -> bool:
    """Whether a page is a picture, or in a font that does not say which letters it draws."""
    if 10 * text.count("(cid:") > len(text) > 0:
        return True
    drawn = bool(page.images) or len(page.curves) > _MANY_CURVES
    return drawn and len("".join(text.split())) < _LITTLE


def plain(path: Path, password: str, number: int) -> str:
    """The text of page ``number``, from 1, as another library reads it, which repairs what is damaged."""
    import pypdfium2

    with pypdfium2.PdfDocument(path, password=password or None) as pdf:
        text: str = pdf[number - 1].get_textpage().get_text_bounded()
        return text.replace("\r\n", "\n").replace("\0", "").strip()


def picture(path: Path, password: str, number: int) -> "Image":
    """Page ``number``, from 1, as it is printed."""
    import pypdfium2

    with pypdfium2.PdfDocument(path, password=password or None) as pdf:
        page = pdf[number - 1]
        scale = min(_DPI / 72, _MAX_PIXELS / max(*page.get_size(), 1.0))
        image: Image = page.render(scale=scale, grayscale=True).to_pil()
        return image


def _tables(page: "Page") -> "list[Table]":
    if len(page.lines) + len(page.rects) + len(page.curves) > _MAX_LINES:
        return []
    found = []
    for one in page.find_tables():
        cells = [cell for row in one.extract() for cell in row]
        filled = sum(bool(cell and cell.strip()) for cell in cells)
        # A frame around something is no table, nor is a drawing.
        if len(one.rows) > 1 and len(one.columns) > 1 and filled >= _LEAST_FILLED * len(cells):
            found.append(one)
    return found


def _place(word: Word, tables: "list[Table]") -> int | None:
    x, y = (word["x0"] + word["x1"]) / 2, (word["top"] + word["bottom"]) / 2
    for number, one in enumerate(tables):
        left, top, right, bottom = one.bbox
        if left <= x <= right and top <= y <= bottom:
            return number
    return None


def _paragraphs(words: list[Word], usual: float) -> str:
    text: list[str] = []
    bottom = None
    for line in _lines(words):
        top, size = min(word["top"] for word in line), max(word["size"] for word in line)
        mark = _mark(line, usual)
        if bottom is not None and (mark or text[-1].startswith("#") or not -size < top - bottom < 0.7 * size):
            text.append("")
        text.append(mark + _joined(line))
        bottom = max(word["bottom"] for word in line)
    return "\n".join(text)


def _lines(words: list[Word]) -> Iterator[list[Word]]:
    line: list[Word] = []
    for word in words:
        if line:
            last = line[-1]
            shared = min(word["bottom"], last["bottom"]) - max(word["top"], last["top"])
            lower = min(word["bottom"] - word["top"], last["bottom"] - last["top"])
            if shared < 0.4 * lower or word["x0"] < last["x1"] - max(word["size"], 1.0):
                yield line
                line = []
        line.append(word)
    if line:
        yield line


def _joined(line: list[Word]) -> str:
    text = line[0]["text"]
    for last, word in itertools.pairwise(line):
        gap, size = word["x0"] - last["x1"], max(word["size"], last["size"])
        # A wide gap is one between columns of a table without lines; none is before an index or exponent.
        text += ("   " if gap > 1.5 * size else " " if gap > _SPACE * size else "") + word["text"]
    return str(text)


def _mark(line: list[Word], usual: float) -> str:
    length = sum(len(word["text"]) for word in line)
    if (
        not usual
        or length > _LONGEST_HEADING
        or not any(one.isalpha() for word in line for one in word["text"])
    ):
        return ""
    size = min(word["size"] for word in line)
    return next((mark for ratio, mark in _HEADINGS if size >= ratio * usual), "")
