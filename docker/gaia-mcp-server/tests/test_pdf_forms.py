"""Forms in PDF files: what is filled in is read, and drawn, with and without pictures of it in the file."""

import io
from pathlib import Path
from typing import Any

import pytest
from gaia_tools.documents_pdf import server
from gaia_tools.pdf_pages import picture
from gaia_tools.pdf_text import pdf_text
from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from tests.conftest import call, content, needs, text
from tests.documents_made import pdf

READ = "convert_document_to_markdown"


def form(path: Path, name: str = "Alice", is_scan: bool = False) -> None:
    """A page with a field of each kind, as an office program writes it: with pictures of the values."""
    canvas = Canvas(str(path), pagesize=A4)
    if is_scan:
        ground = io.BytesIO()
        Image.new("L", (800, 1100), 255).save(ground, "PNG")
        canvas.drawImage(ImageReader(ground), 0, 0, *A4)
    fields = canvas.acroForm
    if not is_scan:
        canvas.drawString(60, 705, "First name:")
        canvas.drawString(60, 665, "Agrees")
        for number, colour in enumerate(("red", "green")):
            canvas.drawString(130, 625 - 30 * number, f"The {colour} one")
        canvas.drawString(60, 545, "Town")
    fields.textfield(name="Text1", value=name, x=150, y=700, width=200, height=20, borderWidth=0)
    fields.checkbox(name="agrees", checked=True, x=150, y=660, size=15)
    fields.checkbox(name="refuses", checked=False, x=250, y=660, size=15)
    for number, colour in enumerate(("red", "green")):
        y = 620 - 30 * number
        fields.radio(name="colour", value=colour, selected=colour == "green", x=100, y=y, size=15)
    towns = ["Kent", "Leeds", "York"]
    fields.choice(name="town", value="Leeds", options=towns, x=150, y=540, width=80, height=20)
    fields.listbox(name="towns", value="York", options=towns, x=150, y=440, width=80, height=60)
    canvas.showPage()
    canvas.drawString(60, 705, "A page without fields.")
    canvas.save()


async def test_fields_are_listed_with_their_values_after_their_page(workspace: Path) -> None:
    form(workspace / "a.pdf")
    result = await call(server, READ, file_path="a.pdf", paginate=True)
    shown = text(result)
    lines = [
        "First name:",
        "[Form fields of this page:]",
        "- Text1 (First name:), text: Alice",
        "- agrees, checkbox: on",
        "- refuses, checkbox: off",
        "- colour, radio buttons: green (The green one) [of: red (The red one); green (The green one)]",
        "- town, choice: Leeds [of: Kent; Leeds; York]",
        "- towns, list: York [of: Kent; Leeds; York]",
        "[Page 2]\n\nA page without fields.",
        "[The file is a form: its fields (6 on these pages) are listed after each page.]",
    ]
    places = [shown.find(line) for line in lines]
    assert -1 not in places, (lines[places.index(-1)], shown)
    assert places == sorted(places)
    assert result.structuredContent is not None and result.structuredContent["form_fields"] == 6
    second = await content(server, READ, file_path="a.pdf", pages="2")
    assert (second["is_form"], second["form_fields"]) == (True, 0)
    assert "- Text1 (First name:), text: Alice" in pdf_text(workspace / "a.pdf")[0]


def written_by_hand(values: str, flags: int = 4) -> bytes:
    """A form whose values have no pictures; readers draw them."""
    fields = (
        f"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /TU (Your full name) /V ({values}) /F {flags}"
        " /Rect [100 700 300 720] /DA (/Helv 12 Tf 0 g) >>",
        "<< /Type /Annot /Subtype /Widget /FT /Btn /T (member) /V /Yes /AS /Yes /F 4 /Rect [100 650 120 670]"
        " /AP << /N << /Yes 8 0 R /Off 8 0 R >> >> >>",
        "<< /Type /Annot /Subtype /Widget /FT /Sig /T (signature) /F 4 /Rect [100 600 300 640] >>",
    )
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R 5 0 R 6 0 R] /NeedAppearances true"
        b" /DR << /Font << /Helv 7 0 R >> >> /DA (/Helv 12 Tf 0 g) >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Annots [4 0 R 5 0 R 6 0 R] >>",
        *(one.encode("latin-1") for one in fields),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 20 20] /Length 0 >>\nstream\n\nendstream",
    )


async def test_values_without_pictures_are_read_and_a_page_of_fields_is_not_called_empty(
    workspace: Path,
) -> None:
    (workspace / "a.pdf").write_bytes(written_by_hand("Bob"))
    found = (await content(server, READ, file_path="a.pdf"))["content"]
    assert found == (
        "[Form fields of this page:]\n- name (Your full name), text: Bob\n- member, checkbox: on\n"
        "- signature, signature: not signed"
    )
    (workspace / "b.pdf").write_bytes(written_by_hand("", flags=2))
    found = (await content(server, READ, file_path="b.pdf"))["content"]
    assert "- name (Your full name), text, hidden: (empty)" in found


@pytest.mark.parametrize("kind", ["with pictures", "without"])
def test_values_are_drawn(workspace: Path, kind: str) -> None:
    def dark(name: str) -> int:
        if kind == "without":
            (workspace / "a.pdf").write_bytes(written_by_hand(name))
        else:
            form(workspace / "a.pdf", name)
        drawn = picture(workspace / "a.pdf", "", 1)
        return drawn.point(lambda value: 255 * (value < 100)).histogram()[255]

    assert dark("Alice and Bob") > dark("") + 500


async def test_ocr_of_a_scan_with_fields_reads_what_is_filled_in(workspace: Path) -> None:
    needs("tesseract")
    form(workspace / "a.pdf", "Margaret Thompson", is_scan=True)
    found = await content(server, READ, file_path="a.pdf")
    assert found["pages_by_ocr"] == [1]
    before, _, after = found["content"].partition("[Form fields of this page:]")
    assert "Margaret Thompson" in before and "text: Margaret Thompson" in after


@pytest.mark.parametrize(
    "annotations",
    [
        "[99 0 R null 7 (text) << >> [ ] 4 0 R]",
        "[" + "<< /Subtype /Widget /FT /Tx /T (x) /Parent 4 0 R >> " * 3000 + "]",
        "(none)",
    ],
)
async def test_damaged_fields_do_not_keep_the_page_from_being_read(workspace: Path, annotations: str) -> None:
    held: tuple[Any, ...] = (
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R 4 0 R 88 0 R] >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 5 0 R /Resources << /Font << /F 6 0 R >> >>"
        b" /Annots " + annotations.encode() + b" >>",
        b"<< /FT /Tx /T (self) /Parent 4 0 R /Kids [4 0 R] /Subtype /Widget >>",
        b"<< /Length 39 >>\nstream\nBT /F 12 Tf 50 700 Td (Still read) Tj ET\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    (workspace / "a.pdf").write_bytes(pdf(*held))
    assert "Still read" in (await content(server, READ, file_path="a.pdf"))["content"]
