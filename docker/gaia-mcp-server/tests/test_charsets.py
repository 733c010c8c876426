"""A text in any of many encodings is read rightly, or its result says which other encoding may be the right one."""

import random
import unicodedata

import pytest
from gaia_tools.charsets import decode, doubt, is_text
from mcp.server.fastmcp.exceptions import ToolError

from tests.paragraphs import PARAGRAPHS

ENCODINGS = {
    "arabic": "cp1256 iso8859-6 cp720 utf-16-le",
    "chinese": "gb18030 gb2312 hz utf-16-le utf-16-be utf-32-le utf-32-be",
    "chinese_traditional": "big5 utf-16-be",
    "czech": "cp1250 iso8859-2 cp852 mac-latin2",
    "french": "cp1252 iso8859-15 cp850 mac-roman",
    "german": "cp1252 iso8859-1 cp850 cp437 mac-roman utf-16-le utf-32-le",
    "greek": "cp1253 iso8859-7 cp737 mac-greek cp869",
    "hebrew": "cp1255 iso8859-8 cp862 utf-16-le",
    "hungarian": "cp1250 iso8859-2 cp852 mac-latin2",
    "japanese": "cp932 euc_jp iso2022_jp utf-16 utf-16-le utf-16-be utf-32",
    "korean": "cp949 euc_kr iso2022_kr johab utf-16-le",
    "lithuanian": "cp1257 iso8859-13 cp775 iso8859-4",
    "polish": "cp1250 iso8859-2 iso8859-16 cp852 mac-latin2",
    "portuguese": "cp1252 cp850 cp860 mac-roman",
    "russian": "cp1251 koi8-r cp866 iso8859-5 mac-cyrillic cp855 utf-16-le utf-16-be utf-32-be",
    "spanish": "cp1252 iso8859-15 cp850 mac-roman",
    "thai": "cp874 tis-620 utf-16-be",
    "turkish": "cp1254 iso8859-9 cp857 mac-turkish",
    "ukrainian": "cp1251 koi8-u cp866 mac-cyrillic cp1125",
    "vietnamese": "cp1258 viscii utf-16-le",
}
CASES = [(language, encoding) for language, names in ENCODINGS.items() for encoding in names.split()]


def encoded(text: str, encoding: str) -> bytes:
    if encoding == "cp1258":
        return b"".join(map(_cp1258, text))
    return text.encode(encoding, "ignore")


def _cp1258(letter: str) -> bytes:
    """A letter with its tone as a mark of its own, as cp1258 has them."""
    try:
        return letter.encode("cp1258")
    except UnicodeEncodeError:
        base, *marks = unicodedata.normalize("NFD", letter)
        tones = [mark for mark in marks if mark in "\u0300\u0301\u0303\u0309\u0323"]
        shape = "".join(mark for mark in marks if mark not in tones)
        return (unicodedata.normalize("NFC", base + shape) + "".join(tones)).encode("cp1258")


def same(content: bytes, encoding: str, expected: str) -> bool:
    return unicodedata.normalize("NFC", content.decode(encoding, "replace")) == unicodedata.normalize(
        "NFC", expected
    )


@pytest.mark.parametrize(("language", "encoding"), CASES)
@pytest.mark.parametrize("characters", [1000, 100])
def test_a_text_is_read_rightly_or_the_right_encoding_is_named(
    language: str, encoding: str, characters: int
) -> None:
    content = encoded(PARAGRAPHS[language][:characters], encoding)
    expected = content.decode(encoding)
    found = decode(content, "auto", "a.txt")
    assert any(same(content, one, expected) for one in (found.encoding, *found.alternatives)), found
    if characters == 1000:
        assert same(content, found.encoding, expected), found


def test_doubt_is_expressed_where_two_readings_are_nearly_as_likely() -> None:
    content = encoded(PARAGRAPHS["czech"], "iso8859-2")
    found = decode(content, "auto", "a.txt")
    assert found.encoding == "iso8859_2"
    assert "cp1250" in found.alternatives
    assert "a guess" in doubt(found.encoding, found.alternatives)
    assert "encoding=cp1250" in doubt(found.encoding, found.alternatives)
    assert found.text != decode(content, "cp1250", "a.txt").text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "iso2022_jp", "cp932"])
def test_there_is_no_doubt_where_nothing_else_fits(encoding: str) -> None:
    found = decode(PARAGRAPHS["japanese"].encode(encoding), "auto", "a.txt")
    assert found.alternatives == ()
    assert found.encoding == encoding
    assert doubt(found.encoding, found.alternatives) == encoding


def test_a_common_encoding_is_named_where_rare_ones_read_the_same() -> None:
    assert decode("Grüße aus Köln".encode("latin-1"), "auto", "a.txt").encoding == "cp1252"
    assert decode(PARAGRAPHS["japanese"].encode("euc_jp"), "auto", "a.txt").encoding == "euc_jp"


def test_viscii_is_a_codec_and_reads_what_it_writes() -> None:
    text = PARAGRAPHS["vietnamese"]
    content = text.encode("viscii")
    assert len(content) == len(text)
    assert content.decode("viscii") == text
    assert "Ẳ\nữ".encode("viscii") == b"\x02\n\xe6"  # RFC 1456


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 10,
        random.Random(1).randbytes(4000),
        b"".join(number.to_bytes(2, "little") for number in range(2000)),
        b"".join(number.to_bytes(4, "little") for number in range(2000)),
        b"\0" * 1000,
        b"".join(
            int(3000 * (number % 97 - 48) / 48).to_bytes(2, "little", signed=True) for number in range(2000)
        ),
    ],
)
def test_binary_data_is_no_text(content: bytes) -> None:
    assert not is_text(content)
    with pytest.raises(ToolError, match="not a text file"):
        decode(content, "auto", "a.bin")


def test_escapes_of_terminals_and_tildes_are_plain_text() -> None:
    for text in ("\x1b[31mred\x1b[0m and $(ls)\n" * 20, "cost ~{100} of ~{200}\n" * 20):
        found = decode(text.encode(), "auto", "a.log")
        assert (found.text, found.encoding) == (text, "utf-8")
