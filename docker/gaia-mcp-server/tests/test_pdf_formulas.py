"""Scripts above each other follow their letter; of fractions the result says that their lines are apart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gaia_tools import pdf_text
from gaia_tools.documents_pdf import server
from reportlab.pdfgen.canvas import Canvas

from tests.conftest import call, content, text

READ = "convert_document_to_markdown"


@pytest.fixture
def canvas(workspace: Path) -> Canvas:
    return Canvas(str(workspace / "a.pdf"))


def _draw(canvas: Canvas, x: float, y: float, words: str, size: int = 12) -> float:
    """Where the words end."""
    canvas.setFont("Helvetica", size)
    canvas.drawString(x, y, words)
    return x + float(canvas.stringWidth(words, "Helvetica", size))


@pytest.mark.parametrize(
    "scripts, expected",
    [
        ([("2", 5), ("i", -2)], "where x^2_i is large"),
        ([("max", -2), ("20", 5)], "where x_max^20 is large"),
    ],
)
async def test_scripts_above_each_other_follow_their_letter(
    scripts: list[tuple[str, int]], expected: str, canvas: Canvas
) -> None:
    end = _draw(canvas, 72, 700, "where x")
    ends = [_draw(canvas, end, 700 + rise, script, 7) for script, rise in scripts]
    _draw(canvas, max(ends) + 3, 700, "is large")
    canvas.save()
    assert expected in (await content(server, READ, file_path="a.pdf"))["content"]


def _fraction(canvas: Canvas) -> None:
    _draw(canvas, 72, 700, "then f =")
    _draw(canvas, 130, 708, "a + b")
    _draw(canvas, 138, 691, "12")
    canvas.line(128, 704, 161, 704)


def _underlined(canvas: Canvas) -> None:
    begin = _draw(canvas, 72, 700, "An ")
    end = _draw(canvas, begin, 700, "underlined word")
    canvas.line(begin, 698, end, 698)
    _draw(canvas, 72, 686, "and the following line of the paragraph")


@pytest.mark.parametrize("draw, pages", [(_fraction, [1]), (_underlined, [])])
async def test_pages_with_fractions_are_named(
    draw: Callable[[Canvas], None], pages: list[int], canvas: Canvas
) -> None:
    draw(canvas)
    canvas.save()
    result = await call(server, READ, file_path="a.pdf")
    assert (result.structuredContent or {})["pages_with_fractions"] == pages
    assert ("Pages with fractions" in text(result)) == bool(pages)


@pytest.mark.parametrize("rise, calls", [(0, 0), (5, 1)])
def test_only_pages_with_raised_runs_are_read_letter_by_letter(
    rise: int, calls: int, canvas: Canvas, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _draw(canvas, 72, 700, "10")
    _draw(canvas, end, 700 + rise, "-3", 7 if rise else 12)
    _draw(canvas, 72, 30, "a foot of the page", 7)
    canvas.save()
    counted = []
    whole = pdf_text._with_scripts
    monkeypatch.setattr(pdf_text, "_with_scripts", lambda page: counted.append(1) or whole(page))
    assert ("10^-3" in pdf_text.pdf_text(workspace / "a.pdf")[0]) == bool(rise)
    assert len(counted) == calls
