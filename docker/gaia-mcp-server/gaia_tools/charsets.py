"""Bytes as text: Unicode where it is, and else the legacy charset that fits best, with those that fit nearly as well.

chardet compares bytes with texts of each language in each charset. A second reading that is nearly as likely is named,
so that a reader who sees that the text is wrong knows what to ask for.
"""

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mcp.server.fastmcp.exceptions import ToolError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Of charsets that read a text alike, the first of these is named: those that files are most often in.
_COMMON = [
    *("cp1252", "cp932", "gb18030", "big5", "euc_jp", "cp949", "cp1251", "koi8_r", "cp1250", "iso8859_2"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "cp866", "cp850", "cp852"),
    *("cp437", "mac_roman", "mac_cyrillic", "mac_latin2", "iso2022_jp", "iso2022_kr"),
]
# They write all characters as ASCII: iso-2022-jp and -kr after an escape, hz between ~{ and ~}.
_ESCAPING = ("iso2022", "hz")
_ESCAPE = re.compile(rb"\x1b[$(]|\x0e|~\{")
# What the letters of one text are nearly all in, where they are East Asian.
_EAST_ASIAN = ("gb2312", "big5", "cp932", "cp949")
_SAMPLE_BYTES = 20_000
_WIDE_SAMPLE_BYTES = 4096
_MAX_ALTERNATIVES = 4
# A reading is named that is less likely than the first by less than this: in tests/test_charsets.py, the right one is
# then among those named, and most texts have no other.
_NEAR = 0.13
# Tabs, line ends, vertical tabs, form feeds, escapes and shifts are in text files; the others are not.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\r\f\x0e\x0f\x1b\x1a"))
_ORDINARY = bytes(set(range(256)) - set(_CONTROLS))

# RFC 1456. Python has no codec for it.
_VISCII_CONTROLS = {2: "Ẳ", 5: "Ẵ", 6: "Ẫ", 20: "Ỷ", 25: "Ỹ", 30: "Ỵ"}
_VISCII_UPPER = (
    "ẠẮẰẶẤẦẨẬẼẸẾỀỂỄỆỐỒỔỖỘỢỚỜỞỊỎỌỈỦŨỤỲÕắằặấầẩậẽẹếềểễệốồổỗỠƠộờởịỰỨỪỬơớƯÀÁÂÃẢĂẳẵÈÉÊẺÌÍĨỳĐứÒÓÔạỷừửÙÚỹỵÝỡư"
    "àáâãảăữẫèéêẻìíĩỉđựòóôõỏọụùúũủýợỮ"
)
_VISCII = "".join(_VISCII_CONTROLS.get(code, chr(code)) for code in range(128)) + _VISCII_UPPER
_VIETNAMESE_SYLLABLE = re.compile(
    r"(b|ch?|d|đ|gi?|gh|h|kh?|l|m|ngh?|nh?|ph?|qu|r|s|th?|tr|v|x)?[aeiouy]{1,3}(ch?|m|ng|nh|n|p|t)?"
)


@dataclass(frozen=True)
class Decoded:
    """A text that was bytes; ``alternatives`` are encodings that fit nearly as well, best first."""

    text: str
    encoding: str
    alternatives: tuple[str, ...] = ()


def doubt(encoding: str, alternatives: Sequence[str]) -> str:
    if not alternatives:
        return encoding
    others = " or ".join(alternatives)
    return f"{encoding} (a guess: where letters look wrong, ask again with encoding={others})"


def decode(content: bytes, encoding: str, name: str) -> Decoded:
    """The text of a file, whose encoding is found out where it is ``auto``."""
    chosen, alternatives = detect(content, name) if encoding == "auto" else (encoding, ())
    try:
        return Decoded(content.decode(chosen), chosen, alternatives)
    except UnicodeDecodeError as error:
        if encoding == "auto":
            return Decoded(content.decode(chosen, errors="replace"), chosen, alternatives)
        raise ToolError(f"{name} is not {encoding}: {error}. Use encoding='auto'.") from error
    except (LookupError, ValueError) as error:
        raise ToolError(f"{encoding!r} is not an encoding: {error}. Use encoding='auto'.") from error


def detect(content: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding, ()
    if wide := _wide(content):
        return wide, ()
    if not is_text(content):
        raise ToolError(f"{name} is not a text file: it has bytes that text does not have.")
    if escaping := _escaping(content):
        return escaping, ()
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
        return "utf-8", ()
    except UnicodeDecodeError:
        return _legacy(content)


def is_text(content: bytes) -> bool:
    if content.startswith(tuple(_BYTE_ORDER_MARKS)) or _wide(content):
        return True
    return len(content.translate(None, _CONTROLS)) >= 0.99 * len(content)


def _wide(content: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: bytes below 32 are half of many of their characters, and other bytes make none
    that a text has.
    """
    if not content[:_WIDE_SAMPLE_BYTES].translate(None, _ORDINARY):
        return None
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        # A file may be cut, and a sample may end between the halves of a character.
        sample = content[: min(_WIDE_SAMPLE_BYTES, len(content) // width * width)]
        text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(sample)
        if len(text) > 1 and _is_writing(text):
            return encoding
    return None


def _is_writing(text: str) -> bool:
    visible = [one for one in text if not one.isspace() and unicodedata.category(one) != "Cf"]
    if not visible or not all(one.isprintable() for one in visible) or "\ufffd" in visible:
        return False
    letters = [one for one in visible if not one.isascii() and unicodedata.category(one) != "Po"]
    if len(letters) <= 0.2 * len(visible):
        return True
    blocks = Counter(0 if _is_latin(one) else ord(one) >> 8 for one in letters)
    east_asian = any(block >= 0x2E for block in blocks)
    if not east_asian:
        return blocks.most_common(1)[0][1] >= 0.9 * len(letters)
    kept = max(len("".join(letters).encode(charset, "ignore").decode(charset)) for charset in _EAST_ASIAN)
    return len(letters) >= 4 and kept >= 0.97 * len(letters)


def _escaping(content: bytes) -> str | None:
    if not content.isascii() or not _ESCAPE.search(content):
        return None
    from chardet import detect as chardet

    encoding = chardet(content[:_SAMPLE_BYTES], compat_names=False)["encoding"] or ""
    if not encoding.startswith(_ESCAPING):
        return None
    text = _read(content, encoding)
    return None if text is None else _named(text, {text: [encoding]}, content)


def _legacy(content: bytes) -> tuple[str, tuple[str, ...]]:
    from chardet import EncodingEra, detect_all

    # Only what is not ASCII tells charsets apart, each once: in a table, the rest would outweigh it.
    # A vertical bar may be half of a Chinese or Japanese character.
    pieces = (
        piece for piece in re.split(rb"[\r\n\t,;]+", content[: 100 * _SAMPLE_BYTES]) if not piece.isascii()
    )
    sample = b"\n".join(dict.fromkeys(pieces))[:_SAMPLE_BYTES] or content[-_SAMPLE_BYTES:]
    eras = EncodingEra.ALL & ~EncodingEra.MAINFRAME
    confidence: dict[str, float] = {}  # by what a text is read as
    encodings: dict[str, list[str]] = {}
    for found in detect_all(sample, ignore_threshold=True, encoding_era=eras, compat_names=False):
        encoding = found["encoding"]
        if encoding and (text := _read(sample, encoding)) is not None:
            confidence.setdefault(text, found["confidence"])
            encodings.setdefault(text, []).append(encoding)
    if (text := _read(sample, "viscii")) and _is_vietnamese(text):
        confidence[text] = 0.4
        encodings[text] = ["viscii"]
    # chardet's confidence is of the order of the share of letters that are misplaced in a wrong reading.
    scores = {text: likely - _oddity(text) for text, likely in confidence.items()}
    ranked = sorted(scores, key=lambda text: -scores[text])
    if not ranked:
        return "cp1252", ()
    best = ranked[0]
    near = [text for text in ranked[1:] if scores[text] > scores[best] - _NEAR][:_MAX_ALTERNATIVES]
    return _named(best, encodings, sample), tuple(_named(text, encodings, sample) for text in near)


def _named(text: str, encodings: dict[str, list[str]], sample: bytes) -> str:
    return next((one for one in _COMMON if _read(sample, one) == text), encodings[text][0])


def _read(content: bytes, encoding: str) -> str | None:
    try:
        # A sample may end within a character.
        return codecs.getincrementaldecoder(encoding)().decode(content)
    except (UnicodeDecodeError, LookupError):
        return None


def _oddity(text: str) -> float:
    """The share of other characters than ASCII that stand where no language puts them.

    These are symbols and capitals within words, letters of two scripts in one word, and words of one foreign letter.
    """
    mostly_ascii = sum(one.isascii() for one in text) > 0.7 * len(text)
    others = [place for place, one in enumerate(text) if not one.isascii()]
    return sum(_is_odd(text, place, mostly_ascii) for place in others) / max(len(others), 1)


def _is_odd(text: str, place: int, mostly_ascii: bool) -> bool:
    one, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    category = unicodedata.category(one)
    if category in ("Cc", "Cn", "Co"):
        return True
    if category == "Mn":
        return not before.isalpha()
    if category[0] in "SNP":
        return before.isalpha() and after.isalpha() and not _is_east_asian(one) and one not in "’‘·–—"
    if category == "Lu" and before.islower():
        return True
    if _is_latin(one) or _is_east_asian(one):
        return False
    around = [neighbour for neighbour in (before, after) if neighbour.isalpha()]
    return any(neighbour.isascii() for neighbour in around) or (mostly_ascii and not around)


def _is_latin(letter: str) -> bool:
    return letter < "\u0300" or "\u1e00" <= letter < "\u1f00"


def _is_east_asian(letter: str) -> bool:
    return "\u2e80" <= letter < "\ue000" or letter >= "\uff00"


def _is_vietnamese(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+", text.lower())
    if len(words) < 8 or sum(not word.isascii() for word in words) < 0.3 * len(words):
        return False
    return sum(_VIETNAMESE_SYLLABLE.fullmatch(_bare(word)) is not None for word in words) >= 0.9 * len(words)


def _bare(word: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFD", word) if not unicodedata.combining(one))


def _viscii(name: str) -> codecs.CodecInfo | None:
    if name != "viscii":
        return None
    encoding_table = codecs.charmap_build(_VISCII)

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        return codecs.charmap_encode(text, errors, encoding_table)

    def decode_bytes(content: bytes, errors: str = "strict") -> tuple[str, int]:
        return codecs.charmap_decode(content, errors, _VISCII)

    class Decoder(codecs.IncrementalDecoder):
        def decode(self, input: bytes, final: bool = False) -> str:
            return decode_bytes(input, self.errors)[0]

    return codecs.CodecInfo(encode, decode_bytes, incrementaldecoder=Decoder, name="viscii")


codecs.register(_viscii)
