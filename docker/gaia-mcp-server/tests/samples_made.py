"""Makes ``samples``: small files of every kind that tools read, and the answers of services, for the servers' tests.

They are in the repository; this is how they were made, and how they are made again, with the packages of the ``tests``
group and ffmpeg that has flite: ``python -m tests.samples_made``.
"""

import json
import subprocess
import zipfile
from pathlib import Path

HERE = Path(__file__).parent.parent / "samples"
SITE = HERE / "site"
ARCHIVED = SITE / "web/20150630id_/http%3A/gulls.example"
SENTENCE = "The lighthouse keeper counts forty-two gulls."


def main() -> None:
    """Write all of them."""
    for folder in ("w", "api", "customsearch", "v1/chat", ARCHIVED):
        (SITE / folder).mkdir(parents=True, exist_ok=True)
    make_texts()
    make_office_files()
    make_pdf()
    make_archives()
    make_media()
    make_answers()


def make_texts() -> None:
    """Text and HTML."""
    (HERE / "note.txt").write_text(f"{SENTENCE}\n")
    page = (
        "<!DOCTYPE html><html lang='en'><head><title>Gulls</title></head><body><main><h1>Gulls</h1>"
        f"<p>{SENTENCE} He writes their number into a book, every morning, before the boats leave the harbour.</p>"
        "<p>In the evening he counts them again, and compares both numbers with those of the year before.</p>"
        "</main></body></html>\n"
    )
    (HERE / "page.html").write_text(page)
    (SITE / "page.html").write_text(page)
    (SITE / "note.txt").write_text(f"{SENTENCE}\n")
    (ARCHIVED / "page.html").write_text(page)


def make_office_files() -> None:
    """A table, a letter and a presentation."""
    import docx
    import openpyxl
    import pptx

    book = openpyxl.Workbook()
    for row in (("place", "gulls"), ("lighthouse", 42), ("harbour", 17)):
        book.active.append(row)
    book.save(HERE / "gulls.xlsx")
    letter = docx.Document()
    letter.add_heading("Letter", 1)
    letter.add_paragraph(SENTENCE)
    letter.save(str(HERE / "letter.docx"))
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text = "Gulls"
    slide.placeholders[1].text = SENTENCE
    slides.save(str(HERE / "talk.pptx"))


def make_pdf() -> None:
    """A page."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(HERE / "page.pdf"), invariant=True)
    canvas.drawString(72, 720, SENTENCE)
    canvas.save()


def make_archives() -> None:
    """A ZIP file, and a book."""
    with zipfile.ZipFile(HERE / "files.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("gulls/note.txt", SENTENCE)
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles>'
        "</container>"
    )
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">gulls</dc:identifier>'
        "<dc:title>Gulls</dc:title><dc:language>en</dc:language></metadata>"
        '<manifest><item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>'
    )
    chapter = (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>One</title></head>'
        f"<body><h1>One</h1><p>{SENTENCE}</p></body></html>"
    )
    with zipfile.ZipFile(HERE / "book.epub", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", container)
        book.writestr("book.opf", package)
        book.writestr("one.xhtml", chapter)


def make_media() -> None:
    """A picture of words, spoken words, and a film."""
    from PIL import Image, ImageDraw, ImageFont

    sign = Image.new("L", (420, 80), 255)
    ImageDraw.Draw(sign).text((20, 16), "PLATFORM 42", 0, ImageFont.load_default(size=48))
    sign.save(HERE / "sign.png", optimize=True)
    ffmpeg("-f", "lavfi", "-i", "flite=text='seven one nine':voice=slt", "-ar", "16000", "spoken.ogg")
    ffmpeg("-f", "lavfi", "-i", "testsrc=duration=2:size=64x48:rate=5", "-pix_fmt", "yuv420p", "film.mp4")


def ffmpeg(*arguments: str) -> None:
    """Run it in the folder of the samples."""
    subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], cwd=HERE, check=True)


def make_answers() -> None:
    """What services answer."""
    article = {"title": "Lighthouse", "pageid": 1, "revid": 1, "text": f"<p>{SENTENCE}</p>", "sections": []}
    write("w/api.php", {"parse": article})
    item = {"title": "Lighthouse", "link": "https://gulls.example/", "snippet": SENTENCE}
    write("customsearch/v1", {"searchInformation": {"totalResults": "1"}, "items": [item]})
    content = f"{SENTENCE}\n\n```python\nprint(6 * 7, 42)\n```"
    message = {"role": "assistant", "content": content}
    write(
        "v1/chat/completions",
        {"model": "sample", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]},
    )
    (SITE / "api/query").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom" '
        'xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/"><opensearch:totalResults>1</opensearch:totalResults>'
        "<entry><id>http://arxiv.org/abs/2301.00001v1</id><title>Counting gulls</title>"
        f"<summary>{SENTENCE}</summary><published>2023-01-01T00:00:00Z</published>"
        "<updated>2023-01-01T00:00:00Z</updated><author><name>A. Keeper</name></author>"
        '<category term="cs.AI"/></entry></feed>\n'
    )


def write(path: str, content: object) -> None:
    """An answer of JSON."""
    (SITE / path).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
