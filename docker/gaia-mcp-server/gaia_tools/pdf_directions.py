"""Text of a PDF page that does not run from left to right along the page.

Arabic and Hebrew come as they are seen and are put into the order in which they are read, by Unicode's bidirectional
algorithm. Turned text, and columns of Chinese or Japanese characters, get coordinates in which they run from left to
right, so that words are found in them.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

Char = dict[str, Any]
Gap = Callable[[Char, Char], str]
"""What is written between two letters of a line."""

_RIGHT_TO_LEFT = re.compile(
    r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001eeff]"
)
_ARABIC = re.compile(r"[\u0600-\u07bf\u0860-\u08ff\ufb50-\ufdff\ufe70-\ufefc]")
_PRESENTATION_FORMS = re.compile(r"[\ufb1d-\ufdfc\ufe70-\ufefc]+")  # letters as they are drawn within a word
_IDEOGRAPHS = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
_ARABIC_MARK = "\u061c"  # has no width and the direction of an Arabic letter
_MIN_COLUMN = 3  # characters below each other that are taken for vertical text
_MAX_PITCH = 1.3  # of a character's height: lines of a single character are farther apart
_ANGLE = 2  # degrees


def is_special(chars: list[Char]) -> bool:
    return any(
        (one["text"] > "\u0590" and (_RIGHT_TO_LEFT.search(one["text"]) or _IDEOGRAPHS.search(one["text"])))
        or not one["upright"]
        or _angle(one)
        for one in chars
    )


def runs(chars: list[Char], place: Callable[[Char], Any]) -> Iterator[tuple[bool, Any, list[Char]]]:
    """Letters that follow each other, in one direction and at one place: whether turned, the place, and the letters.

    Those of turned text have coordinates as if it were not.
    """
    angles = [_angle(one) for one in chars]
    for start, end in _columns(chars):
        angles[start:end] = [-90] * (end - start)
    keys = [(angle, place(one)) for angle, one in zip(angles, chars, strict=True)]
    for (angle, where), group in itertools.groupby(zip(keys, chars, strict=True), key=lambda pair: pair[0]):
        letters = [one for _, one in group]
        yield bool(angle), where, [_straightened(one, angle) for one in letters] if angle else letters


def has_right_to_left(text: str) -> bool:
    return bool(_RIGHT_TO_LEFT.search(text))


def is_right_to_left(text: str) -> bool:
    """Whether half of its letters, and one at least, are read from right to left."""
    found = len(_RIGHT_TO_LEFT.findall(text))
    return 0 < found >= sum(one.isalpha() for one in text) / 2


def logical_line(chars: list[Char], gap: Gap) -> str:
    seen = "".join(_as_seen(chars, gap))
    logical = _logical(seen, "R" if is_right_to_left(seen) else "L")
    return _PRESENTATION_FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), logical)


def _logical(seen: str, base: str) -> str:
    """The text that is displayed as ``seen``: the algorithm undoes itself, apart from signs beside Arabic figures."""
    from bidi.algorithm import get_display

    plain = str(get_display(seen, base_dir=base))
    if _ARABIC.search(seen) and get_display(plain, base_dir=base) != seen:
        marked = str(get_display(_ARABIC_MARK + seen, base_dir=base)).replace(_ARABIC_MARK, "")
        if get_display(marked, base_dir=base) == seen:
            return marked
    return plain


def _as_seen(chars: list[Char], gap: Gap) -> Iterator[str]:
    """The pieces of a line from left to right. A letter that stands for several, or has marks, comes as one piece."""
    bases = [one for one in chars if not one["text"].isspace() and not _is_mark(one)]
    bases.sort(key=lambda one: one["x0"])
    marks: dict[int, str] = {}
    for mark in filter(_is_mark, chars):
        middle = (mark["x0"] + mark["x1"]) / 2
        nearest = min(bases, key=lambda one: abs((one["x0"] + one["x1"]) / 2 - middle), default=None)
        if nearest is not None:
            marks[id(nearest)] = marks.get(id(nearest), "") + mark["text"]
    last = None
    for one in bases:
        if last is not None:
            yield gap(last, one)
        text = one["text"] + marks.get(id(one), "")
        yield text[::-1] if len(text) > 1 and _RIGHT_TO_LEFT.search(text) else text
        last = one


def _is_mark(char: Char) -> bool:
    return all(unicodedata.category(one) == "Mn" for one in char["text"])


def _angle(char: Char) -> int:
    a, b = char["matrix"][:2]
    if b == 0 and a >= 0:
        return 0
    angle = round(math.degrees(math.atan2(b, a)))
    return 0 if abs(angle) <= _ANGLE else angle


def _straightened(char: Char, angle: int) -> Char:
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    width, height = char["x1"] - char["x0"], char["bottom"] - char["top"]
    x, y = (char["x0"] + char["x1"]) / 2, -(char["top"] + char["bottom"]) / 2
    along, across = x * cosine + y * sine, y * cosine - x * sine
    if abs(sine) > abs(cosine) and abs(cosine) < 0.1:
        length, size = height, width
    elif abs(sine) < 0.1:
        length, size = width, height
    else:  # the box around a letter that stands obliquely
        a, b = char["matrix"][:2]
        length = abs(char["adv"]) * math.hypot(a, b)
        size = max((width - length * abs(cosine)) / abs(sine), 1.0)
    return {
        **char,
        "x0": along - length / 2,
        "x1": along + length / 2,
        "top": -across - size / 2,
        "bottom": -across + size / 2,
        "doctop": -across - size / 2,
        "size": size,
        "upright": True,
    }


def _columns(chars: list[Char]) -> Iterator[tuple[int, int]]:
    """Where characters follow each other downwards: the numbers of the first, and of the one after the last."""
    start = 0
    for number in range(1, len(chars) + 1):
        if number < len(chars) and _is_below(chars[number - 1], chars[number]):
            continue
        if number - start >= _MIN_COLUMN:
            yield start, number
        start = number


def _is_below(upper: Char, lower: Char) -> bool:
    if not (_IDEOGRAPHS.search(upper["text"]) and _IDEOGRAPHS.search(lower["text"])):
        return False
    height = max(upper["bottom"] - upper["top"], 1.0)
    step = lower["top"] - upper["top"]
    aside = abs(lower["x0"] + lower["x1"] - upper["x0"] - upper["x1"]) / 2
    return 0.5 * height < step < _MAX_PITCH * height and aside < 0.5 * height
