"""A page of a PDF file as Markdown, or its picture."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaia_tools import pdf_directions, superscripts
from gaia_tools.pdf_forms import has_form
from gaia_tools.tables import table

if TYPE_CHECKING:
    from pdfplumber.page import Page
    from pdfplumber.table import Table
    from PIL.Image import Image

_SPACE = 0.15  # of the letters' size; closer ones are of one word
# Of the size of the letter before: how large scripts are, and how much higher they stand.
_SMALL = (0.45, 0.85)
_RAISED = (0.15, 0.75)
_LOWERED = -0.03
_DPI = 300
_MAX_PIXELS = 4000  # of a side: pages may claim to be kilometres long
_MAX_LINES = 5000  # drawings have more, and tables are not looked for among them
_LEAST_FILLED = 0.3
_LONGEST_HEADING = 200
# How much larger than most of the page a heading of each level is.
_HEADINGS = ((1.6, "# "), (1.3, "## "), (1.12, "### "))
_LITTLE = 8  # characters: less is not text but a number of the page or a stamp
_THICK, _LONGEST_BAR, _MAX_BARS = (
    1.5,
    0.4,
    200,
)  # of bars of fractions: points, of the page's width, on a page
_LEAST_OF_BAR = 0.6  # is filled by the longer of numerator and denominator
_MANY_CURVES = 20  # letters drawn as outlines have more

Word = dict[str, Any]


def page_markdown(page: "Page") -> str:
    tables = _tables(page)
    written: set[int] = set()
    blocks: list[str] = []
    is_special = pdf_directions.is_special(page.chars)
    runs = list(_special_runs(page, tables) if is_special else _runs(page, tables))
    usual = _usual_size([word for run in runs for word in run.words])
    raised = {run.table for run in runs if any(any(_levels(line)) for line in _lines(run.words))}
    for run in runs:
        if run.table is None:
            blocks.append(_paragraphs(run.words, 0.0 if run.is_turned else usual))
        elif run.table not in written:
            written.add(run.table)
            found = tables[run.table]
            rows = _special_rows(page, found) if is_special or run.table in raised else _rows(found)
            blocks.append(table(rows))
    return "\n\n".join(filter(None, blocks)).strip()


def needs_ocr(page: "Page", text: str) -> bool:
    if 10 * text.count("(cid:") > len(text) > 0:
        return True
    drawn = bool(page.images) or len(page.curves) > _MANY_CURVES
    return drawn and len("".join(text.split())) < _LITTLE


def has_fractions(page: "Page") -> bool:
    """Whether a short line has letters above and below its middle that fill it and have none beside them."""
    bars = [
        one
        for one in (*page.lines, *page.rects)
        if one["height"] < _THICK and one["width"] < _LONGEST_BAR * page.width
    ]
    if not 0 < len(bars) <= _MAX_BARS:
        return False
    letters = [one for one in page.chars if not one["text"].isspace()]
    filled = ((_share_filled(bar, letters, -1), _share_filled(bar, letters, 1)) for bar in bars)
    return any(min(shares) > 0 and max(shares) > _LEAST_OF_BAR for shares in filled)


def _share_filled(bar: Word, letters: list[Word], side: int) -> float:
    """How much of a bar is filled by letters close above it (``side`` -1) or below; 0 where these are not in its middle
    or go beyond it.
    """
    edge = "bottom" if side < 0 else "top"
    near = [
        one for one in letters if -0.3 * one["size"] < side * (one[edge] - bar["top"]) < 0.5 * one["size"]
    ]
    beside = [
        one for one in near if bar["x0"] - one["size"] < one["x1"] and one["x0"] < bar["x1"] + one["size"]
    ]
    if not beside:
        return 0.0
    left, right = min(one["x0"] for one in beside), max(one["x1"] for one in beside)
    is_in_middle = abs(left + right - bar["x0"] - bar["x1"]) < 0.5 * beside[0]["size"]
    is_within = bar["x0"] - 1 <= left and right <= bar["x1"] + 1
    return (right - left) / max(bar["width"], 1.0) if is_in_middle and is_within else 0.0


def plain(path: Path, password: str, number: int) -> str:
    import pypdfium2

    with pypdfium2.PdfDocument(path, password=password or None) as pdf:
        text: str = pdf[number - 1].get_textpage().get_text_bounded()
        return text.replace("\r\n", "\n").replace("\0", "").strip()


def picture(path: Path, password: str, number: int) -> "Image":
    import pypdfium2

    with pypdfium2.PdfDocument(path, password=password or None) as pdf:
        has_form(pdf)
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
        # A frame around something is not a table, nor is a drawing.
        if len(one.rows) > 1 and len(one.columns) > 1 and filled >= _LEAST_FILLED * len(cells):
            found.append(one)
    return found


@dataclass(frozen=True)
class _Run:
    """Words that follow each other in the file, with coordinates as if they were not turned."""

    words: list[Word]
    table: int | None
    is_turned: bool = False


def _runs(page: "Page", tables: "list[Table]") -> Iterator[_Run]:
    words = page.extract_words(use_text_flow=True, extra_attrs=["size"], x_tolerance_ratio=_SPACE)
    for place, run in itertools.groupby(words, key=lambda word: _place(word, tables)):
        yield _Run(list(run), place)


def _special_runs(page: "Page", tables: "list[Table]") -> Iterator[_Run]:
    for is_turned, place, chars in pdf_directions.runs(page.chars, lambda char: _place(char, tables)):
        yield _Run(_words(chars), place, is_turned)


def _words(chars: list[Word]) -> list[Word]:
    from pdfplumber.utils.text import extract_words

    return extract_words(
        chars, use_text_flow=True, extra_attrs=["size"], x_tolerance_ratio=_SPACE, return_chars=True
    )


def _rows(one: "Table") -> list[list[str]]:
    return [[cell or "" for cell in row] for row in one.extract(x_tolerance_ratio=_SPACE)]


def _special_rows(page: "Page", one: "Table") -> list[list[str]]:
    """The cells of a table; those of one in Arabic or Hebrew from right to left, as its columns are read."""
    rows = [["" if box is None else _cell(page.chars, box) for box in row.cells] for row in one.rows]
    text = "".join(cell for row in rows for cell in row)
    return [row[::-1] for row in rows] if pdf_directions.is_right_to_left(text) else rows


def _cell(chars: list[Word], box: tuple[float, float, float, float]) -> str:
    left, top, right, bottom = box
    inside = [
        one
        for one in chars
        if left <= (one["x0"] + one["x1"]) / 2 < right and top <= (one["top"] + one["bottom"]) / 2 < bottom
    ]
    runs = pdf_directions.runs(inside, lambda _: None)
    return "\n".join(_paragraphs(_words(letters), 0.0) for _, _, letters in runs).strip()


def _usual_size(words: list[Word]) -> float:
    sizes: Counter[float] = Counter()
    for word in words:
        sizes[round(word["size"], 1)] += len(word["text"])
    return sizes.most_common(1)[0][0] if sizes else 0.0


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
    for row in _split(list(_in_one_row(words)), _is_in_another_row):
        if _has_right_to_left(row):
            yield row
        else:
            yield from _split(row, _goes_back)


def _in_one_row(words: list[Word]) -> Iterator[Word]:
    base: Word | None = None
    first: tuple[Word, int] | None = None
    for word in words:
        level = 0
        if base is not None and abs(word["x0"] - base["x1"]) < _SPACE * base["size"]:
            level = script_level(word["size"], base["size"], base["bottom"] - word["bottom"])
        if base is not None and first is not None and level == -first[1] != 0:
            after = first[0]["x1"]
            place = {"x0": after, "x1": max(after, word["x1"]), "top": base["top"], "bottom": base["bottom"]}
            yield {**word, **place, "level": level}
            continue
        base, first = (base, (word, level)) if level else (word, None)
        yield word


def _split(words: list[Word], is_between: Callable[[Word, Word], bool]) -> Iterator[list[Word]]:
    part: list[Word] = []
    for word in words:
        if part and is_between(part[-1], word):
            yield part
            part = []
        part.append(word)
    if part:
        yield part


def _is_in_another_row(last: Word, word: Word) -> bool:
    shared = min(word["bottom"], last["bottom"]) - max(word["top"], last["top"])
    lower = min(word["bottom"] - word["top"], last["bottom"] - last["top"])
    return bool(shared < 0.4 * lower)


def _goes_back(last: Word, word: Word) -> bool:
    return bool(word["x0"] < last["x1"] - max(word["size"], 1.0))


def _has_right_to_left(row: list[Word]) -> bool:
    return any(pdf_directions.has_right_to_left(word["text"]) for word in row)


def _joined(line: list[Word]) -> str:
    if _has_right_to_left(line):
        return pdf_directions.logical_line([char for word in line for char in word["chars"]], _gap)
    gaps = ["", *(_gap(last, word) for last, word in itertools.pairwise(line))]
    texts = [gap + word["text"] for gap, word in zip(gaps, line, strict=True)]
    return superscripts.joined(list(zip(texts, _levels(line), strict=True)))


def _levels(line: list[Word]) -> list[int]:
    levels, base = [0], line[0]
    for last, word in itertools.pairwise(line):
        level = 0
        if not _gap(last, word):
            rise = base["bottom"] - word["bottom"]
            level = word.get("level") or script_level(word["size"], base["size"], rise)
        levels.append(level)
        base = base if level else word
    return levels


def script_level(size: float, base: float, rise: float) -> int:
    """Whether a letter of ``size`` that stands higher by ``rise`` than one of size ``base`` is its superscript (1), its
    subscript (-1), or neither, as small capitals and the letters beside a large initial are.
    """
    if not _SMALL[0] * base < size < _SMALL[1] * base:
        return 0
    return 1 if _RAISED[0] * base < rise < _RAISED[1] * base else -1 if -base < rise < _LOWERED * base else 0


def _gap(last: Word, word: Word) -> str:
    gap, size = word["x0"] - last["x1"], max(word["size"], last["size"])
    # A wide gap is one between columns of a table without lines; none is before an index or exponent.
    return "   " if gap > 1.5 * size else " " if gap > _SPACE * size else ""


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
