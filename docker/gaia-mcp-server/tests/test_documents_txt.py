"""Text files are read whatever their encoding, part by part; what is no text is refused with what reads it."""

import re
from pathlib import Path

import pytest
from gaia_tools.documents_txt import server

from tests.conftest import call, content, refusal, text
from tests.paragraphs import PARAGRAPHS

READ = "extract_text_content"


@pytest.mark.parametrize(
    ("said", "encoding"),
    [
        ("Grüße aus Köln: „schön“, 12 €\n", "cp1252"),
        ("José, niño, mañana, São Paulo\n", "cp1252"),
        ("Łódź; Kraków; Zażółć gęślą jaźń\n", "cp1250"),
        ("Москва — столица России\n", "cp1251"),
        ("東京都渋谷区のテキスト\n", "cp932"),
        ("東京都渋谷区のテキスト\n", "utf-8"),
        ("北京市朝阳区的中文数据\n", "gb18030"),
        ("서울특별시 부산\n", "cp949"),
        ("plain English text, and Ω\n", "utf-16"),
        ("plain English text\n", "utf-16-le"),
        ("plain English text\n", "utf-16-be"),
        ("with a mark: é\n", "utf-8-sig"),
    ],
)
async def test_text_is_read_in_many_encodings(workspace: Path, said: str, encoding: str) -> None:
    (workspace / "a.txt").write_bytes((said * 30).encode(encoding))
    found = await content(server, READ, file_path="a.txt")
    assert text(await call(server, READ, file_path="a.txt", output_format="text")) == said * 30
    assert found["lines"] == 30
    assert found["encoding"] == encoding


async def test_doubt_about_an_encoding_is_told_with_what_to_try(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(PARAGRAPHS["czech"].encode("iso8859-2"))
    result = await call(server, READ, file_path="a.txt")
    assert "iso8859_2 (a guess: where letters look wrong, ask again with encoding=cp1250" in text(result)
    assert result.structuredContent is not None
    assert "cp1250" in result.structuredContent["other_encodings"]
    assert "oprava starého" in (await content(server, READ, file_path="a.txt"))["content"]


async def test_the_codes_of_rich_text_are_shown_with_the_tool_that_reads_it(workspace: Path) -> None:
    (workspace / "a.rtf").write_text(r"{\rtf1\ansi Hello}")
    shown = text(await call(server, READ, file_path="a.rtf"))
    assert r"{\rtf1\ansi Hello}" in shown
    assert "extract_docx_content shows what it says" in shown


async def test_a_long_text_is_read_part_by_part(workspace: Path) -> None:
    whole = "".join(f"line {number}\n" for number in range(10_000))
    (workspace / "long.log").write_text(whole)
    read, start = "", 0
    while start is not None:
        found = await content(server, READ, file_path="long.log", start=start)
        part = text(await call(server, READ, file_path="long.log", start=start, output_format="text"))
        read += part if found["next_start"] is None else part[: part.rindex("\n[...")]
        start = found["next_start"]
    assert read == whole
    assert "ask again with start=500" in text(
        await call(server, READ, file_path="long.log", max_content_length=500)
    )
    assert "ends at character" in await refusal(server, READ, file_path="long.log", start=10**6)


@pytest.mark.parametrize(
    ("name", "held", "said"),
    [
        ("a.txt", b"", "0 bytes"),
        ("a.txt", b"%PDF-1.7\n", "a PDF file, .* convert_document_to_markdown"),
        ("a.txt", b"\x89PNG\r\n\x1a\n\0\0", "an image, .* analyze_image_ai"),
        ("a.txt", bytes(range(256)) * 10, "binary format"),
        ("a.txt", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "is damaged"),
        ("a.docx", b"PK\x03\x04 and nothing more", "damaged or incomplete"),
        ("a.txt", b" \n", "no text in it"),
        ("a.txt", b"7z\xbc\xaf\x27\x1c\0\x04", "7z archive.*bsdtar"),
    ],
)
async def test_what_is_no_text_is_refused_with_a_reason(
    workspace: Path, name: str, held: bytes, said: str
) -> None:
    (workspace / name).write_bytes(held)
    found = await refusal(server, READ, file_path=name)
    assert re.search(said, found), found


async def test_an_encoding_may_be_given(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes("ñ".encode("latin-1"))
    assert (await content(server, READ, file_path="a.txt", encoding="latin-1"))["content"] == "ñ"
    assert "is not utf-8" in await refusal(server, READ, file_path="a.txt", encoding="utf-8")
    assert "not an encoding" in await refusal(server, READ, file_path="a.txt", encoding="klingon")


async def test_files_elsewhere_are_refused(workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc/passwd")
    for name in ("/etc/passwd", "../../../etc/passwd", "link"):
        assert "outside" in await refusal(server, READ, file_path=name)
    assert "There is no file" in await refusal(server, READ, file_path="none.txt")


async def test_the_formats_are_listed() -> None:
    assert ".txt" in text(await call(server, "list_supported_formats"))
