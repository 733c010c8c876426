"""Superscripts and subscripts as text: ``10^20``, ``10^-3``, ``10^{a+b}``, ``H_2O``.

Without a sign, 10 to the 20 would read 1020. Marks that are not a value stay plain: ``[1]``, ``14th``, ``*``.
"""

import itertools
import re
from collections.abc import Sequence

Piece = tuple[str, int]
"""Text, and whether it is raised (1), lowered (-1) or on the line (0)."""

_SIGNS = "+-\u2212"
_TOKEN = re.compile(rf"[{_SIGNS}]|[{_SIGNS}]?(?:\d+(?:\.\d+)?|[^\W\d_]+)")
_REFERENCE = re.compile(r"(?:\[[^\[\]]*\]\s*)+|[*†‡§¶#°′″®©™]+|TM|SM")
_ORDINAL = re.compile(r"st|nd|rd|th|er|nde?|[eè]re|[eè]me", re.IGNORECASE)


def marks(script: str, level: int, before: str = "", after: str = "") -> tuple[str, str]:
    """What is written before and after a superscript (``level`` 1) or subscript (-1).

    ``after`` is the text after it, which must not be taken for a part of it.
    """
    is_ordinal = before[-1:].isalnum() and _ORDINAL.fullmatch(script)
    if not script or (level > 0 and (is_ordinal or _REFERENCE.fullmatch(script))):
        return "", ""
    sign = "^" if level > 0 else "_"
    if _TOKEN.fullmatch(script) and not _goes_on(script, after):
        return sign, ""
    return sign + "{", "}"


def spread(pieces: Sequence[Piece]) -> list[str]:
    texts = [text for text, _ in pieces]
    for level, run in itertools.groupby(range(len(pieces)), key=lambda number: pieces[number][1]):
        numbers = [number for number in run if texts[number].strip()] if level else []
        if not numbers:
            continue
        first, last = numbers[0], numbers[-1]
        whole = "".join(texts[first : last + 1])
        following = "".join(text for text, other in pieces[last + 1 :][:20] if other == 0)
        after = whole[len(whole.rstrip()) :] + (following if _is_on_line(pieces, last + 1) else "")
        opening, closing = marks(whole.strip(), level, "".join(texts[:first])[-20:], after)
        stripped = texts[first].lstrip()
        texts[first] = texts[first][: len(texts[first]) - len(stripped)] + opening + stripped
        stripped = texts[last].rstrip()
        texts[last] = stripped + closing + texts[last][len(stripped) :]
    return texts


def joined(pieces: Sequence[Piece]) -> str:
    return "".join(spread(pieces))


def _is_on_line(pieces: Sequence[Piece], number: int) -> bool:
    return number < len(pieces) and pieces[number][1] == 0


def _goes_on(script: str, after: str) -> bool:
    following, last = after[:1], script[-1]
    if last.isdigit():
        return following.isdigit() or (following in ".," and after[1:2].isdigit() and bool(following))
    return following.isalnum() or (last in _SIGNS and following != "" and following in _SIGNS)
