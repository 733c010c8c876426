"""Texts compare equal when they differ only in how a keyboard or a web page writes a character: full width, typographic
quotes and dashes, invisible or composed characters. NFKC is not used, because it turns 10² into 102.
"""

import string
import unicodedata

MAX_MARKS = 30
"""Combining marks in a row up to which text is normalised, as in Unicode's stream-safe format (UAX 15); reordering
them takes quadratic time, and no language has so many."""

PUNCTUATION = string.punctuation + "…·•¿¡«»‹›„‚。、・「」『』【】《》〈〉"
"""ASCII punctuation, which GAIA's rule removes from strings, and its counterparts in other scripts."""

_FIRST_MARK = "\u0300"
_PLAIN = {
    **dict.fromkeys("‐‑‒–—―−﹣", "-"),
    **dict.fromkeys("‘’‛′＇", "'"),
    **dict.fromkeys("“”‟″＂", '"'),
    # Soft hyphen, zero-width space, directions, BOM.
    **dict.fromkeys("\u00ad\u200b\u200e\u200f\u2060\ufeff", None),
    "\u3000": " ",
    **{chr(wide): chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)},
}
_FOLD = str.maketrans(_PLAIN)
_WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)


def fold(text: str) -> str:
    """The text in plain characters, with its case and spacing."""
    if text.isascii():
        return text
    text = text.translate(_FOLD)
    if not text or max(text) < _FIRST_MARK or _has_many_marks(text):
        return text
    return unicodedata.normalize("NFC", text)


def bare(text: str) -> str:
    """The folded text in lower case without space and punctuation, as GAIA's rule compares strings."""
    return "".join(fold(text).split()).casefold().translate(_WITHOUT_PUNCTUATION)


def is_hidden(ground_truth: str) -> bool:
    """Whether a ground truth is hidden, such as ``?`` in test sets: nothing but space and punctuation."""
    return not bare(ground_truth)


def _has_many_marks(text: str) -> bool:
    run = 0
    for character in text:
        run = run + 1 if character >= _FIRST_MARK and unicodedata.combining(character) else 0
        if run > MAX_MARKS:
            return True
    return False
