"""Books are read chapter by chapter in their order; damaged, protected and hostile ones end in an error."""

import zipfile
from pathlib import Path

import pytest
from gaia_tools.documents_epub import server

from tests.conftest import call, content, refusal, text
from tests.documents_made import as_programs_write_it, laughs, rewritten

READ = "extract_epub_content"
_CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
_PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Book</dc:title>
<dc:creator>Ann Author</dc:creator><dc:creator>Bob Writer</dc:creator><dc:language>en</dc:language></metadata>
<manifest>
<item id="two" href="text/chapter%202.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/chapter1.xhtml" media-type="application/xhtml+xml"/>
</manifest><spine><itemref idref="one"/><itemref idref="two"/></spine></package>"""
_CHAPTER = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "x">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head>
<body><h2>Chapter {0}</h2><p>Text of chapter {0}, naïve&nbsp;as it is.</p></body></html>"""


@pytest.fixture
def book(workspace: Path) -> Path:
    # https://www.w3.org/TR/epub-33/#sec-zip-container-mime: the type first, and not compressed.
    with zipfile.ZipFile(workspace / "book.epub", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        file.writestr("META-INF/container.xml", _CONTAINER)
        file.writestr("OEBPS/content.opf", _PACKAGE)
        file.writestr("OEBPS/text/chapter 2.xhtml", _CHAPTER.format(2))
        file.writestr("OEBPS/text/chapter1.xhtml", _CHAPTER.format(1))
    return workspace / "book.epub"


async def test_chapters_come_in_the_order_of_the_book(book: Path) -> None:
    result = await call(server, READ, file_path="book.epub")
    shown = text(result)
    assert "The Book by Ann Author, Bob Writer, 2 chapters" in shown
    assert "1. Chapter 1 (" in shown
    assert shown.index("## Chapter 1\n\nText of chapter 1, naïve as it is.") < shown.index("## Chapter 2\n")
    found = await content(server, READ, file_path="book.epub", chapter=2)
    assert found["content"].startswith("## Chapter 2")
    assert "Chapter 1" not in found["content"]
    assert "no chapter 3" in await refusal(server, READ, file_path="book.epub", chapter=3)


async def test_damaged_protected_and_other_books_are_refused(book: Path, workspace: Path) -> None:
    (workspace / "cut.epub").write_bytes((workspace / "book.epub").read_bytes()[:300])
    assert "damaged or incomplete" in await refusal(server, READ, file_path="cut.epub")
    with zipfile.ZipFile(workspace / "plain.epub", "w") as file:
        file.writestr("a.txt", "a")
    assert "an archive, not an EPUB book" in await refusal(server, READ, file_path="plain.epub")
    rights = b'<encryption><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></encryption>'
    rewritten(book, "META-INF/encryption.xml", rights)
    assert "DRM" in await refusal(server, READ, file_path="book.epub")
    rewritten(book, "META-INF/encryption.xml", b"<encryption/>")
    rewritten(book, "OEBPS/content.opf", b"<package>")
    assert "is damaged" in await refusal(server, READ, file_path="book.epub")


@pytest.mark.parametrize("part", ["META-INF/container.xml", "OEBPS/content.opf"])
async def test_xml_that_declares_entities_is_refused(book: Path, part: str) -> None:
    rewritten(book, part, laughs())
    assert "declares XML entities" in await refusal(server, READ, file_path="book.epub")


async def test_a_chapter_whose_entities_grow_is_read_without_them(book: Path) -> None:
    rewritten(book, "OEBPS/text/chapter1.xhtml", laughs())
    assert "Chapter 2" in (await content(server, READ, file_path="book.epub"))["content"]


async def test_a_bomb_is_refused(book: Path) -> None:
    rewritten(book, "OEBPS/text/chapter1.xhtml", b"<p>" + b"a" * (200 << 20))
    assert "ZIP bomb" in await refusal(server, READ, file_path="book.epub")


async def test_exponents_and_formulas_of_a_book_are_text_whatever_packed_it(book: Path) -> None:
    page = "<html><body><p>6 × 10<sup>23</sup> <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math></p></body></html>"
    with zipfile.ZipFile(book) as old:
        chapter = next(name for name in old.namelist() if name.endswith(".xhtml"))
    rewritten(book, chapter, page.encode())
    as_programs_write_it(book)
    shown = (await content(server, READ, file_path=book.name))["content"]
    assert r"6 × 10^23 $\frac{1}{2}$" in shown
