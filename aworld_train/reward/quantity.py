"""Numbers as people write them in an answer, for the scorer ``gaia``: ``1,234``, ``$17.50``, ``−3``, ``50 %``.

Read as floating point, as GAIA's rule does, but whole numbers to the last digit.
"""

import math
import re
import string
from typing import NamedTuple

from aworld_train.reward.folding import fold

MAX_CHARS = 100
_EXACT_DIGITS = 15
"""Digits that every float holds; longer whole numbers are compared as such."""

# Signs go before or after a currency sign. Groups are of three digits (or two and then three, as in India), between
# commas, spaces or apostrophes that are all the same.
_WRITTEN = re.compile(
    r"(?P<sign>[+-]?)\s*\\?(?P<before>[%$€£¥₹]?)\s*(?P<later>[+-]?)"
    r"(?P<whole>[0-9]{1,3}(?:(?P<mark>[,' \u00a0\u2009\u202f])[0-9]{3})(?:(?P=mark)[0-9]{3})*"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}|[0-9]+|(?=\.[0-9]))"
    r"(?P<rest>(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"\s*\\?(?P<after>[%$€£¥₹]?)"
)
_DRESS = string.whitespace + "\u00a0*`\"'"
_NOT_DIGITS = re.compile(r"[^0-9]")


class Quantity(NamedTuple):
    """A number, and its unit where it has one.

    Attributes:
        value: The number.
        unit: A currency sign, ``%``, or nothing.
        whole: The number where it is a whole one with more digits than a float holds.
    """

    value: float
    unit: str = ""
    whole: int | None = None

    def equals(self, other: "Quantity") -> bool:
        """Whether it is the same number; a unit may be missing on one side, but not be another one."""
        if self.unit and other.unit and self.unit != other.unit:
            return False
        if self.whole is not None and other.whole is not None:
            return self.whole == other.whole
        return self.value == other.value


def read_quantity(text: str) -> Quantity | None:
    """The number that a text is; None where it is none, or one that no float holds, or ``nan``."""
    if len(text) > MAX_CHARS or text[:1].isalpha():
        return None
    try:
        value, unit = float(text), ""
    except ValueError:
        written = _WRITTEN.fullmatch(fold(text).lstrip(_DRESS).rstrip(_DRESS + ".,;"))
        if written is None or (written["sign"] and written["later"]):
            return None
        if written["before"] and written["after"] not in ("", written["before"]):
            return None
        unit = written["before"] or written["after"]
        text = written["sign"] + written["later"] + _NOT_DIGITS.sub("", written["whole"]) + written["rest"]
        value = float(text)
    if not math.isfinite(value):
        return None
    if len(text) > _EXACT_DIGITS:
        text = text.strip().removesuffix(".")
        digits = text[1:] if text[:1] in "+-" else text
        if digits.isdecimal():
            return Quantity(value, unit, int(text))
    return Quantity(value, unit)
