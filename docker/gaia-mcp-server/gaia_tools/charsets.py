"""Bytes as text: Unicode where it is, and else the legacy charset that fits best."""

import codecs
import re

from mcp.server.fastmcp.exceptions import ToolError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Those that files are still found in: of many more, a rare one would often be taken for a common one.
_LEGACY = [
    *("cp1252", "cp932", "gb18030", "big5", "euc_jp", "cp949", "cp1251", "koi8_r"),
    *("cp1250", "iso8859_2", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874"),
]
_SAMPLE_BYTES = 50_000
# Tabs, line ends, vertical tabs, form feeds and escapes are in text files; the others are not.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\r\f\x1b\x1a"))


def decode(content: bytes, encoding: str, name: str) -> tuple[str, str]:
    """The text of a file and its encoding, which is found out where it is ``auto``.

    Raises:
        ToolError: It is not in the encoding asked for, or is no text.
    """
    chosen = detect(content, name) if encoding == "auto" else encoding
    try:
        return content.decode(chosen), chosen
    except UnicodeDecodeError as error:
        if encoding == "auto":
            return content.decode(chosen, errors="replace"), chosen
        raise ToolError(f"{name} is not {encoding}: {error}. Use encoding='auto'.") from error
    except (LookupError, ValueError) as error:
        raise ToolError(f"{encoding!r} is no encoding: {error}. Use encoding='auto'.") from error


def detect(content: bytes, name: str) -> str:
    """The encoding of a text file.

    Raises:
        ToolError: It is no text file.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    if wide := _wide(content):
        return wide
    if not is_text(content):
        raise ToolError(f"{name} is no text file: it has bytes that text does not have.")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
        return "utf-8"
    except UnicodeDecodeError:
        return _legacy(content)


def is_text(content: bytes) -> bool:
    """Whether bytes may be text of any encoding; a stray control character is no matter."""
    if content.startswith(tuple(_BYTE_ORDER_MARKS)) or _wide(content):
        return True
    return len(content.translate(None, _CONTROLS)) >= 0.99 * len(content)


def _wide(content: bytes) -> str | None:
    """UTF-16 without a mark: in most texts, every second byte of many is zero and no other is."""
    sample = content[: _SAMPLE_BYTES if len(content) > _SAMPLE_BYTES else len(content) // 2 * 2]
    for encoding, high, low in (("utf-16-le", 1, 0), ("utf-16-be", 0, 1)):
        zeros = sample[high::2].count(0)
        if len(sample) >= 4 and zeros > 0.4 * len(sample) / 2 and not sample[low::2].count(0):
            text = sample.decode(encoding, errors="replace")
            return encoding if all(one.isprintable() or one.isspace() for one in text) else None
    return None


def _legacy(content: bytes) -> str:
    from charset_normalizer import from_bytes

    # Only what is not ASCII tells charsets apart, each once: in a table, the rest would outweigh it.
    # A vertical bar may be half of a Chinese or Japanese character.
    pieces = (
        piece for piece in re.split(rb"[\r\n\t,;]+", content[: 40 * _SAMPLE_BYTES]) if not piece.isascii()
    )
    sample = b"\n".join(dict.fromkeys(pieces))[:_SAMPLE_BYTES]
    matches = from_bytes(sample or content[-_SAMPLE_BYTES:], cp_isolation=_LEGACY)
    best = matches.best()
    if best is None:
        return "cp1252"
    possible = {encoding for match in matches for encoding in match.could_be_from_charset}
    # What these have in common with cp1252 tells nothing, and cp1252 is far more common.
    if best.encoding in ("cp1250", "iso8859_2", "cp1257") and "cp1252" in possible:
        return "cp1252"
    return best.encoding
