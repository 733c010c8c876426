"""Shingles: the short runs of words by which questions are compared.

The similarity of two questions is their number of shared shingles divided by that of all (Jaccard). A shingle is three
words in a row, with padding at the ends of the text: at a similarity of 0.8 one word in 27 may differ, and none in a
question of a dozen words. In texts of a few words, and in scripts without spaces, it is five characters in a row. A
text with both kinds of script has the shingles of both.

Questions that differ only in a figure are different tasks. Therefore a shingle has `0` for every number, and the
figures of a text, in their order, are compared apart from its words. What editors of datasets add, such as numbering
and markup, is removed first: its figures would hide the question.
"""

import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

FEW_WORDS = 5
MIN_WORDS = 8
"""A text with fewer words is found neither inside another nor by its words alone: too many texts have these words.

GPT-3's search for contamination used runs of 8 to 13 words (Brown et al., 2020, appendix C).
"""

_WORDS_IN_A_ROW = 3
_CHARACTERS_IN_A_ROW = 5
_CHARACTERS_OF_A_WORD = 2

# Thai, Lao, Tibetan, Burmese, Khmer, kana, and the ideographs with their extensions.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_NUMERALS = "〇一二三四五六七八九十百千万亿萬億两兩半"
_OPERATORS = "-+*/^=<>|~×÷±·∙√≤≥≠"
_DASHES = str.maketrans(dict.fromkeys("−–—‐‑", "-") | {"’": "'", "⁄": "/"})
_ENDS = ".,;:?!'\"()[]{}…。、“”‘’«»「」*_`#"

_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_UNSPACED_RUN = re.compile(f"[{_NUMERALS}]+|(?:(?![{_NUMERALS}])[{_UNSPACED}])+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=\w)|(?<=\w)-(?=[^\W\d_]{2})")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL = re.compile(r"\d+\.\d+")
_BESIDE_A_NUMBER = re.compile(rf"(?<=[\d)\]}}])\s*([{_OPERATORS}])\s*|\s*([{_OPERATORS}])\s*(?=[\d(\[{{])")
_FIGURE = re.compile(rf"[{_OPERATORS}{_NUMERALS}\d%\\]")
_NUMBER = re.compile(rf"\d+(?:\.\d+)?|[{_NUMERALS}]+")
_WORD = re.compile(r"\w+")

_NUMBERING = re.compile(
    r"\s*(?:[-*>•#]+\s+(?=[^\W\d_]))?"
    r"(?:[(\[]?\d{1,4}[.)\]]\s+(?=[^\W_]*[^\W\d_])"
    r"|(?:problem|question|exercise|example|task|item|no\.?|q)\s*(?:#?\d{1,4}(?:\.\d{1,3})*)?\s*[.:)]\s+)",
    re.IGNORECASE,
)
_POINTS = re.compile(r"[(\[]\s*\d{1,3}(?:\.\d{1,2})?\s*(?:points?|pts?\.?|marks?)\s*[)\]]", re.IGNORECASE)
# A tag's attributes have values, so that `a <b and c> d` stays a comparison.
_TAG = re.compile(
    r"</?(?:(?P<inline>b|i|u|em|strong|span|code|tt|font)|p|br|div|li|ul|ol|h[1-6]|pre|center)"
    r"(?:\s+[\w-]+=(?:\"[^\"]*\"|'[^']*'|[^\s<>]+))*\s*/?>",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(?<![\w)*])(\*{1,3})(?=[^\s*])([^*\n]+?)(?<=\S)\1(?![\w(*])")
_ESCAPE = re.compile(r"\\([$%#&_{}])")
_MATH_MARK = re.compile(r"\\[()\[\]]|\$")
_SLASH_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_]{2})/(?=[^\W\d_]{2})")

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {
    **{word: str(number) for number, word in enumerate(_UNITS.split())},
    **{word: f"{number}0" for number, word in enumerate(_TENS.split(), 2)},
    **{"dozen": "12", "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000"},
    **{"half": "1/2", "third": "1/3", "quarter": "1/4", "twice": "2x", "double": "2x", "triple": "3x"},
}


@dataclass(frozen=True)
class Shingles:
    """A text as it is compared with others.

    ``padded`` are the shingles in the order of the text, with those of the padding at its ends; ``inner`` those without
    padding. ``line`` has the words in the order of the text, with `0` for each figure, and ``figures`` the figures.
    """

    padded: Sequence[str]
    inner: Sequence[str]
    figures: str
    line: str
    words: int


def shingles(text: str) -> Shingles:
    """The shingles of a text.

    Case, spacing, the punctuation between words, Unicode's spellings of a character and a number's (`1,000`,
    `5.00`, `three`) make no difference. A text of nothing but punctuation is compared as it stands; one of
    nothing but spaces has no shingle.
    """
    # JSON can hold half of a surrogate pair, which cannot be hashed.
    text = text.encode(errors="replace").decode()
    words: list[str] = []
    figures: list[str] = []
    for chunk in _chunks(text):
        if _FIGURE.search(chunk):
            figures.append(chunk)
            words.append(_NUMBER.sub("0", chunk))
        else:
            words.extend(_WORD.findall(chunk))
    line = " ".join(words) or " ".join(text.split())
    unspaced = [] if line.isascii() else [word for word in words if _UNSPACED_LETTER.search(word)]
    characters = sum(len(word) for word in unspaced)
    count = len(words) - len(figures) - len(unspaced) + characters // _CHARACTERS_OF_A_WORD
    if len(words) <= FEW_WORDS or 2 * characters >= len(line):
        padded, inner = _runs(line, _CHARACTERS_IN_A_ROW, "")
    else:
        padded, inner = _runs(words, _WORDS_IN_A_ROW, " ")
        if characters >= MIN_WORDS * _CHARACTERS_OF_A_WORD:
            _, runs = _runs(line, _CHARACTERS_IN_A_ROW, "")
            unspaced_runs = [run for run in runs if _UNSPACED_LETTER.search(run)]
            padded, inner = [*padded, *unspaced_runs], [*inner, *unspaced_runs]
    return Shingles(padded, inner, " ".join(figures), line, count)


def _chunks(text: str) -> list[str]:
    text = _without_additions(text)
    line = text.casefold()
    if not line.isascii():
        line = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        line = _UNSPACED_RUN.sub(r" \g<0> ", line.translate(_DASHES))
    line = _THOUSANDS.sub("", _HYPHEN.sub(" ", line))
    line = _DECIMAL.sub(lambda match: match[0].rstrip("0").rstrip("."), line)
    line = _BESIDE_A_NUMBER.sub(lambda match: match[1] or match[2], line)
    chunks = (chunk.strip(_ENDS) for chunk in line.split())
    return [_NUMBER_WORDS.get(chunk, chunk) for chunk in chunks if chunk.strip("-")]


def _without_additions(text: str) -> str:
    """A question without its numbering, points and markup; as it stands where nothing else is in it."""
    question = html.unescape(text) if "&" in text else text
    if "<" in question:
        question = _TAG.sub(lambda tag: "" if tag["inline"] else " ", question)
    if "\\" in question or "$" in question:
        question = _MATH_MARK.sub("", _ESCAPE.sub(r"\1", question))
    if "*" in question:
        question = _EMPHASIS.sub(r"\2", question)
    if "(" in question or "[" in question:
        question = _POINTS.sub(" ", question)
    if "/" in question:
        question = _SLASH_BETWEEN_WORDS.sub(" ", question)
    question = _NUMBERING.sub("", question, count=1) if _NUMBERING.match(question) else question
    return question if question.strip() else text


def _runs(items: Sequence[str], length: int, between: str) -> tuple[list[str], list[str]]:
    if not items:
        return [], []
    ends = [""] * (length - 1)
    padded_items = [*ends, *items, *ends]
    starts = range(len(padded_items) - length + 1)
    padded = [between.join(padded_items[at : at + length]) for at in starts]
    return padded, padded[length - 1 : len(items)] or padded
