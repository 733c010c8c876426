"""PDF files become Markdown on this machine: text, headings, tables, scans by OCR; damage ends in an error."""

import io
import shutil
import zlib
from pathlib import Path

import pytest
from gaia_tools.documents_pdf import server
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    PageBreak,
    PageTemplate,
    Paragraph,
    SimpleDocTemplate,
    Table,
)

from tests import constants_made
from tests.conftest import call, content, needs, refusal, text
from tests.documents_made import pdf

READ = "convert_document_to_markdown"
_STYLES = getSampleStyleSheet()


def report(path: Path, pages: int = 3, encrypt: StandardEncryption | None = None) -> None:
    grid = [("GRID", (0, 0), (-1, -1), 1, colors.black), ("SPAN", (1, 0), (2, 0))]
    parts = [
        Paragraph("Annual report", _STYLES["Title"]),
        Paragraph("1 Results", _STYLES["Heading1"]),
        Paragraph("The results were as <b>expected</b>, H<sub>2</sub>O included. " * 8, _STYLES["BodyText"]),
        Table([["Region", "Sold", ""], ["North", "1", "2"], ["South | East", "3", "4"]], style=grid),
        Paragraph("After the table.", _STYLES["BodyText"]),
    ]
    for number in range(2, pages + 1):
        parts += [PageBreak(), Paragraph(f"This is the text of page number {number}.", _STYLES["BodyText"])]
    SimpleDocTemplate(str(path), pagesize=A4, title="Report 2024", encrypt=encrypt).build(parts)


def scan(path: Path) -> None:
    page = Image.new("L", (1240, 1754), 255)
    font = ImageFont.load_default(48)
    ImageDraw.Draw(page).text((120, 200), "Invoice number 4711\nTotal amount 98.50", font=font, fill=0)
    file = io.BytesIO()
    page.save(file, "PNG")
    canvas = Canvas(str(path), pagesize=A4)
    canvas.drawImage(ImageReader(file), 0, 0, *A4)
    canvas.showPage()
    canvas.drawString(100, 700, "A second page that has its text.")
    canvas.showPage()
    canvas.showPage()
    canvas.save()


async def test_headings_text_and_tables_come_in_order(workspace: Path) -> None:
    report(workspace / "a.pdf")
    result = await call(server, READ, file_path="a.pdf", paginate=True)
    shown = text(result)
    parts = [
        "a.pdf: 3 pages, Report 2024",
        "[Page 1]",
        "# Annual report",
        "# 1 Results",
        "The results were as expected, H_2O included.",
        "| Region | Sold |  |\n| --- | --- | --- |\n| North | 1 | 2 |\n| South \\| East | 3 | 4 |",
        "After the table.",
        "[Page 2]\n\nThis is the text of page number 2.",
        "[Page 3]\n\nThis is the text of page number 3.",
    ]
    places = [shown.find(part) for part in parts]
    assert -1 not in places, (parts[places.index(-1)], shown)
    assert places == sorted(places)
    assert shown.count("Region") == 1
    assert "[Page" not in text(await call(server, READ, file_path="a.pdf"))


async def test_two_columns_are_read_one_after_the_other(workspace: Path) -> None:
    frames = [Frame(50 + 260 * number, 50, 240, 700) for number in range(2)]
    paper = BaseDocTemplate(str(workspace / "paper.pdf"), pagesize=A4)
    paper.addPageTemplates(PageTemplate(frames=frames))
    paper.build([Paragraph(f"Paragraph {n} of the paper goes on and on. " * 4) for n in range(30)])
    found = (await content(server, READ, file_path="paper.pdf"))["content"]
    places = [found.find(f"Paragraph {n} ") for n in range(30)]
    assert places == sorted(places)
    assert "Paragraph 0 of the paper goes on and on." in found


async def test_pages_are_chosen_and_read_on_from(workspace: Path) -> None:
    report(workspace / "a.pdf", pages=12)
    found = await content(server, READ, file_path="a.pdf", pages="2-3, 11-")
    assert (found["pages"], found["shown"], found["next_pages"]) == (12, "2-3,11-12", "")
    assert [n for n in range(1, 13) if f"number {n}." in found["content"]] == [2, 3, 11, 12]
    assert "the file has 12 pages" in await refusal(server, READ, file_path="a.pdf", pages="13")
    for wrong in ("x", "3-x", "-3", "1;2"):
        assert "such as '3-7'" in await refusal(server, READ, file_path="a.pdf", pages=wrong)


async def test_a_long_file_is_read_part_by_part_and_no_page_is_lost(workspace: Path) -> None:
    canvas = Canvas(str(workspace / "long.pdf"), pagesize=A4)
    for page in range(1, 16):
        for line in range(40):
            canvas.drawString(50, 800 - 18 * line, f"Page {page}, line {line}: " + "words and words " * 4)
        canvas.showPage()
    canvas.save()
    shown, pages = [], "1-"
    while pages:
        found = await content(server, READ, file_path="long.pdf", pages=pages)
        assert len(found["content"]) <= 31_000
        shown += [n for n in range(1, 16) if f"Page {n}, line 39:" in found["content"]]
        pages = found["next_pages"]
    assert shown == list(range(1, 16))


async def test_a_scanned_page_is_read_by_ocr(workspace: Path) -> None:
    needs("tesseract")
    scan(workspace / "scan.pdf")
    result = await call(server, READ, file_path="scan.pdf")
    assert "Invoice number 4711\nTotal amount 98.50" in text(result)
    assert "A second page that has its text." in text(result)
    assert "[Page 3 is empty.]" in text(result)
    assert "Read by OCR, which makes mistakes: pages 1." in text(result)


def pictures_of(path: Path, *pages: Image.Image) -> None:
    canvas = Canvas(str(path), pagesize=A4)
    for page in pages:
        file = io.BytesIO()
        page.save(file, "PNG")
        canvas.setPageSize((page.width / 2, page.height / 2))
        canvas.drawImage(ImageReader(file), 0, 0, page.width / 2, page.height / 2)
        canvas.showPage()
    canvas.save()


async def test_a_picture_without_text_is_said_to_be_one_and_not_to_be_read(workspace: Path) -> None:
    needs("tesseract")
    pictures_of(workspace / "blank.pdf", Image.new("L", (1240, 1754), 255))
    result = await call(server, READ, file_path="blank.pdf")
    assert "[Page 1 is a picture in which OCR found no text.]" in text(result)
    assert "empty" not in text(result) and "Read by OCR" not in text(result)


async def test_turned_scans_are_read_and_said_to_be_turned(workspace: Path) -> None:
    needs("tesseract")
    page = Image.new("L", (1240, 1754), 255)
    font = ImageFont.load_default(40)
    lines = [f"Line {number} of the report on trade and industry" for number in range(10, 20)]
    ImageDraw.Draw(page).multiline_text((120, 200), "\n".join(lines), 0, font, spacing=20)
    turned = [page.rotate(angle, expand=True) for angle in (0, 90, 180, 270)]
    pictures_of(workspace / "scan.pdf", *turned)
    result = await call(server, READ, file_path="scan.pdf")
    assert text(result).count("Line 15 of the report on trade and industry") == 4
    notes = "Turned clockwise to be read: page 2 by 90 degrees, page 3 by 180 degrees, page 4 by 270 degrees."
    assert notes in text(result)
    assert "no data to read 'xyz'" in await refusal(server, READ, file_path="scan.pdf", language="xyz")


async def test_without_ocr_a_scanned_page_is_said_to_be_one(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(workspace / "scan.pdf")
    monkeypatch.setenv("PATH", str(workspace))
    assert shutil.which("tesseract") is None
    found = (await content(server, READ, file_path="scan.pdf"))["content"]
    assert (
        "[Page 1 is a picture and could not be read: Text in pictures cannot be read in this environment"
        in found
    )
    assert "A second page that has its text." in found


async def test_an_encrypted_file_needs_its_password(workspace: Path) -> None:
    report(workspace / "a.pdf", encrypt=StandardEncryption("sesame", strength=128))
    assert "is encrypted. Give its password" in await refusal(server, READ, file_path="a.pdf")
    assert "not with the password" in await refusal(server, READ, file_path="a.pdf", password="x")
    found = await content(server, READ, file_path="a.pdf", password="sesame")
    assert "Annual report" in found["content"]


async def test_damaged_and_other_files_are_refused(workspace: Path) -> None:
    report(workspace / "a.pdf")
    whole = (workspace / "a.pdf").read_bytes()
    (workspace / "cut.pdf").write_bytes(whole[:400])
    assert "is damaged" in await refusal(server, READ, file_path="cut.pdf")
    (workspace / "none.pdf").write_bytes(b"%PDF-1.7\n" + b"nothing " * 1000)
    assert "is damaged" in await refusal(server, READ, file_path="none.pdf")
    (workspace / "zero.pdf").touch()
    assert "0 bytes" in await refusal(server, READ, file_path="zero.pdf")
    (workspace / "page.pdf").write_text("<html><body>Not found</body></html>")
    assert "an HTML page, not a PDF file. Use extract_html_content" in await refusal(
        server, READ, file_path="page.pdf"
    )


async def test_a_damaged_page_does_not_take_the_others_with_it(workspace: Path) -> None:
    canvas = Canvas(str(workspace / "a.pdf"), pagesize=A4, pageCompression=0)
    for number in range(1, 4):
        canvas.drawString(100, 700, f"This is the text of page {number}.")
        canvas.showPage()
    canvas.save()
    whole = (workspace / "a.pdf").read_bytes()
    (workspace / "a.pdf").write_bytes(
        whole.replace(b"This is the text of page 2.) Tj", b"\\(((((((((((((((((((((([[<<  ")
    )
    found = (await content(server, READ, file_path="a.pdf"))["content"]
    assert "page 1." in found
    assert "page 3." in found


async def test_a_file_that_one_library_cannot_open_is_read_by_another(workspace: Path) -> None:
    report(workspace / "a.pdf")
    whole = (workspace / "a.pdf").read_bytes()
    assert b"/Producer" in whole
    (workspace / "a.pdf").write_bytes(whole.replace(b"/Producer", b"/Prod cer"))
    found = await content(server, READ, file_path="a.pdf")
    assert found["pages"] == 3
    assert "The results were as expected" in found["content"]


@pytest.mark.parametrize(
    "held",
    [
        # A page of kilometres with a picture of two thousand million bytes, of which there are none.
        pdf(
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 900000000 900000000] /Contents 4 0 R"
            b" /Resources << /XObject << /I 5 0 R >> >> >>",
            b"<< /Length 30 >>\nstream\nq 9 0 0 9 0 0 cm /I Do Q\nendstream",
            b"<< /Type /XObject /Subtype /Image /Width 46000 /Height 46000 /ColorSpace /DeviceGray"
            b" /BitsPerComponent 8 /Length 3 >>\nstream\nabc\nendstream",
        ),
        # Pages that are their own parents, and more of them than there are.
        pdf(
            b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2000000000 >>"
        ),
        # Nested without end.
        pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"[" * 200_000),
    ],
    ids=["huge", "circle", "deep"],
)
async def test_lying_files_end_in_a_result_or_an_error(workspace: Path, held: bytes) -> None:
    (workspace / "a.pdf").write_bytes(held)
    await call(server, READ, file_path="a.pdf")
    report(workspace / "b.pdf")
    assert (await content(server, READ, file_path="b.pdf"))["pages"] == 3


async def test_a_stream_that_grows_without_end_does_not_fill_the_memory(workspace: Path) -> None:
    # A block of zlib's that stands for a million zeros, three thousand times: it is not unpacked to be made.
    packer = zlib.compressobj()
    begin = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    size = 3000 << 20
    bomb = begin + 3000 * block + b"\x03\x00" + (size % 65521 << 16 | 1).to_bytes(4, "big")
    head = b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(bomb)
    held = pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >>",
        head + bomb + b"\nendstream",
    )
    (workspace / "a.pdf").write_bytes(held)
    assert "memory" in await refusal(server, READ, file_path="a.pdf")
    report(workspace / "b.pdf")
    assert (await content(server, READ, file_path="b.pdf"))["pages"] == 3


async def test_exponents_notes_and_attached_files_of_a_page_are_shown(workspace: Path) -> None:
    import pypdf
    from gaia_tools.pdf_text import pdf_text
    from pypdf.annotations import Text

    constants_made.printed([[("1.5 x 10", 0), ("-34", 1), (" J s", 0)]], workspace / "a.pdf")
    writer = pypdf.PdfWriter(clone_from=workspace / "a.pdf")
    writer.add_annotation(0, Text(rect=(50, 50, 60, 60), text="Is it 6.6?", title_bar="Ann"))
    writer.add_attachment("data.csv", b"a,b")
    writer.write(workspace / "a.pdf")
    shown = text(await call(server, READ, file_path="a.pdf"))
    assert "1.5 x 10^-34 J s\n\n[Notes on this page:]\n- Note by Ann: Is it 6.6?" in shown
    assert "[Files attached to it: data.csv." in shown
    assert pdf_text(workspace / "a.pdf") == ["1.5 x 10^-34 J s\n\n- Note by Ann: Is it 6.6?"]
