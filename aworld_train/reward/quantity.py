"""Numbers as people write them in an answer, for the scorer ``gaia``: ``1,234``, ``$17.50``, ``−3``, ``50 %``.

Numbers are read as floating point, as GAIA's rule does; long whole numbers are exact.
"""

import math
import re
import string
from typing import NamedTuple

from aworld_train.reward.folding import fold

MAX_CHARS = 100
_EXACT_DIGITS = 15
"""Digits that every float can hold; longer whole numbers are compared as integers."""

# Signs go before or after a currency sign. Groups are of three digits (or two and then three, as in India), between
# commas, spaces or apostrophes that are all the same.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s*\\?(?P<before>[%$€£¥₹]?)\s*(?P<later>[+-]?)"
    r"(?P<whole>[0-9]{1,3}(?:(?P<mark>[,' \u00a0\u2009\u202f])[0-9]{3})(?:(?P=mark)[0-9]{3})*"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}|[0-9]+|(?=\.[0-9]))"
    r"(?P<rest>(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"\s*\\?(?P<after>[%$€£¥₹]?)"
)
_AROUND = string.whitespace + "\u00a0*`\"'"
_NOT_DIGITS = re.compile(r"[^0-9]")


class Quantity(NamedTuple):
    """A number, and its unit where it has one.

    Attributes:
        value: The number.
        unit: A currency sign, ``%``, or nothing.
        whole: The number as an integer where it is whole and has more digits than a float can hold.
    """

    value: float
    unit: str = ""
    whole: int | None = None

    def equals(self, other: "Quantity") -> bool:
        """Whether it is the same number; one side may have no unit, but two units must be the same."""
        if self.unit and other.unit and self.unit != other.unit:
            return False
        if self.whole is not None and other.whole is not None:
            return self.whole == other.whole
        return self.value == other.value


def read_quantity(text: str) -> Quantity | None:
    """The number that a text is; None for other texts, for numbers that no float can hold, and for ``nan``."""
    if len(text) > MAX_CHARS or text[:1].isalpha():
        return None
    try:
        value, unit = float(text), ""
    except ValueError:
        match = _NUMBER.fullmatch(fold(text).lstrip(_AROUND).rstrip(_AROUND + ".,;"))
        if match is None or (match["sign"] and match["later"]):
            return None
        if match["before"] and match["after"] not in ("", match["before"]):
            return None
        unit = match["before"] or match["after"]
        text = match["sign"] + match["later"] + _NOT_DIGITS.sub("", match["whole"]) + match["rest"]
        value = float(text)
    if not math.isfinite(value):
        return None
    if len(text) > _EXACT_DIGITS:
        text = text.strip().removesuffix(".")
        digits = text[1:] if text[:1] in "+-" else text
        if digits.isdecimal():
            return Quantity(value, unit, int(text))
    return Quantity(value, unit)
