"""Makes the files of ``samples`` that the environment's check reads: ``python -m tests.make_samples``."""

import csv
import math
import struct
import subprocess
import wave
import zipfile
from pathlib import Path

import docx
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.util import Inches
from reportlab.pdfgen.canvas import Canvas

from gaia_tools.samples import FOLDER

TEXT = "The lighthouse of Marrow Point has 217 steps."
_CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_PACKAGE = (
    '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
    '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">sample</dc:identifier>'
    "<dc:title>Lighthouse</dc:title><dc:language>en</dc:language></metadata>"
    '<manifest><item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="one"/></spine></package>'
)
_CHAPTER = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Lighthouse</title></head>'
    f"<body><h1>Lighthouse</h1><p>{TEXT}</p></body></html>"
)


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "note.txt").write_text(TEXT + "\n", encoding="utf-8")
    with (FOLDER / "table.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["lighthouse", "steps"], ["Marrow Point", 217], ["Tern Rock", 94]])
    document = docx.Document()
    document.add_paragraph(TEXT)
    document.save(str(FOLDER / "letter.docx"))
    _slides(FOLDER / "slides.pptx")
    canvas = Canvas(str(FOLDER / "report.pdf"), invariant=True)
    canvas.drawString(72, 720, TEXT)
    canvas.save()
    (FOLDER / "page.html").write_text(_CHAPTER, encoding="utf-8")
    with zipfile.ZipFile(FOLDER / "book.epub", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", _CONTAINER)
        book.writestr("book.opf", _PACKAGE)
        book.writestr("one.xhtml", _CHAPTER)
    with zipfile.ZipFile(FOLDER / "archive.zip", "w") as archive:
        archive.write(FOLDER / "note.txt", "lighthouse.txt")
    image = Image.new("L", (640, 120), 255)
    ImageDraw.Draw(image).text((20, 30), "Marrow Point 217", fill=0, font=ImageFont.load_default(56))
    image.save(FOLDER / "sign.png")
    _tone(FOLDER / "tone.wav")
    _video(FOLDER / "clip.mp4")


def _slides(path: Path) -> None:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    slide.shapes.add_textbox(Inches(1), Inches(1), Inches(6), Inches(1)).text_frame.text = TEXT
    presentation.save(str(path))


def _tone(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        samples = (int(8000 * math.sin(2 * math.pi * 440 * place / 8000)) for place in range(8000))
        file.writeframes(b"".join(struct.pack("<h", one) for one in samples))


def _video(path: Path) -> None:
    source = "testsrc=size=160x120:rate=5:duration=2"
    command = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", str(path)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
