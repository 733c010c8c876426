"""Text of PDF pages that does not run from left to right: it comes in the order in which people read it."""

import subprocess
from pathlib import Path

import matplotlib
import pytest
from gaia_tools.documents_pdf import server
from gaia_tools.pdf_text import pdf_text
from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from tests.conftest import content, needs

READ = "convert_document_to_markdown"
HEBREW = "שלום עולם, זה מבחן"
ARABIC = "بلغت المبيعات نحو"


def canvas(path: Path, size: int = 14) -> Canvas:
    font = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    pdfmetrics.registerFont(TTFont("DejaVu", str(font)))
    page = Canvas(str(path), pagesize=A4)
    page.setFont("DejaVu", size)
    return page


def draw_leftwards(page: Canvas, words: str, right: float, y: float) -> None:
    """Letter by letter, as they are read: each to the left of the one before."""
    for letter in words:
        right -= page.stringWidth(letter, "DejaVu", 14)
        page.drawString(right, y, letter)


@pytest.mark.parametrize("words", [HEBREW, ARABIC])
@pytest.mark.parametrize("order", ["as seen", "as read"])
async def test_letters_come_as_they_are_read_in_whichever_order_the_file_has_them(
    workspace: Path, words: str, order: str
) -> None:
    page = canvas(workspace / "a.pdf")
    for line in range(3):
        y = 700 - 20 * line
        if order == "as seen":
            page.drawRightString(500, y, f"{words} {'אבג'[line]}"[::-1])
        else:
            draw_leftwards(page, f"{words} {'אבג'[line]}", 500, y)
    page.save()
    found = (await content(server, READ, file_path="a.pdf"))["content"]
    assert found == "\n".join(f"{words} {letter}" for letter in "אבג")
    assert pdf_text(workspace / "a.pdf") == [found]


async def test_letters_as_they_are_drawn_within_words_are_written_as_letters(workspace: Path) -> None:
    page = canvas(workspace / "a.pdf")
    # "salam", drawn: meem at the end, the two letters lam and alef as one, seen at the beginning.
    page.drawRightString(500, 700, "\ufee1\ufefc\ufeb3")
    page.save()
    assert (await content(server, READ, file_path="a.pdf"))["content"] == "سلام"


PAGE = """<!doctype html><meta charset=utf-8><title>x</title><body style="font-family: 'DejaVu Sans'">
<h1 dir=rtl>تقرير سنوي 2024</h1>
<p dir=rtl>بلغت المبيعات 1234.56 دولار في عام 2023 (ارتفاع 5%) مع شركة Google العالمية.</p>
<p dir=rtl>שלום עולם, זה מבחן (בדיקה) עם 42 מילים ו-English words בתוכו.</p>
<p>An English line with עברית inside and numbers 7.</p>
<table dir=rtl border=1 style="border-collapse: collapse"><tr><th>المدينة<th>السكان
<tr><td>القاهرة<td>9,500,000<tr><td>دبي<td>3,300,000</table>
<p style="writing-mode: vertical-rl">Turned words here 12</p>"""


async def test_what_a_browser_prints_is_read_as_it_was_written(workspace: Path) -> None:
    """Figures, brackets, and words of another script are where the author put them, and so are a table's columns."""
    needs("chromium")
    (workspace / "a.html").write_text(PAGE)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
        "--print-to-pdf=a.pdf",
    ]
    subprocess.run(["chromium", *options, "a.html"], cwd=workspace, capture_output=True, timeout=60)  # noqa: ASYNC221
    found = (await content(server, READ, file_path="a.pdf"))["content"]
    assert found.partition("\n\n")[2] == (
        "# تقرير سنوي 2024\n\n"
        "بلغت المبيعات 1234.56 دولار في عام 2023 (ارتفاع 5%) مع شركة Google العالمية.\n\n"
        "שלום עולם, זה מבחן (בדיקה) עם 42 מילים ו-English words בתוכו.\n\n"
        "An English line with עברית inside and numbers 7.\n\n"
        "| المدينة | السكان |\n| --- | --- |\n| القاهرة | 9,500,000 |\n| دبي | 3,300,000 |\n\n"
        "Turned words here 12"
    )


@pytest.mark.parametrize("angle", [90, -90, 180, 45, -30])
async def test_turned_text_comes_as_words(workspace: Path, angle: int) -> None:
    page = canvas(workspace / "a.pdf")
    page.drawString(100, 800, "The page itself is read as ever.")
    page.saveState()
    page.translate(300, 400)
    page.rotate(angle)
    page.drawString(0, 0, "arXiv:2401.01234v2 [cs.CL] 5 Jan 2024")
    page.drawString(0, -18, "and a second line")
    page.restoreState()
    page.drawString(100, 100, "The last line.")
    page.save()
    assert (await content(server, READ, file_path="a.pdf"))["content"] == (
        "The page itself is read as ever.\n\narXiv:2401.01234v2 [cs.CL] 5 Jan 2024\nand a second line\n\nThe last line."
    )


async def test_columns_of_characters_come_as_lines(workspace: Path) -> None:
    columns = ["吾輩は猫である。名前は", "まだ無い。どこで生れたか", "とんと見当がつかぬ。"]
    page = Canvas(str(workspace / "a.pdf"), pagesize=A4)
    font = UnicodeCIDFont("HeiseiMin-W3", isVertical=True)
    pdfmetrics.registerFont(font)
    page.setFont(font.fontName, 16)
    for number, column in enumerate(columns):
        page.drawString(500 - 24 * number, 800, column)
    page.save()
    assert (await content(server, READ, file_path="a.pdf"))["content"] == "\n".join(columns)


async def test_lines_of_single_characters_stay_lines(workspace: Path) -> None:
    page = Canvas(str(workspace / "a.pdf"), pagesize=A4)
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    page.setFont("HeiseiMin-W3", 12)
    for number, day in enumerate("月火水木"):
        page.drawString(100, 700 - 18 * number, day)
        page.drawString(130, 700 - 18 * number, "横書きの文章です")
    page.save()
    found = (await content(server, READ, file_path="a.pdf"))["content"]
    assert found.count("横書きの文章です") == 4 and "月火" not in found
