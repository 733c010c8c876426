r"""Numbers as people write them: the one reader of the scorers ``number``, ``math`` and ``gaia``.

It takes off what surrounds a number (``$42$``, ``\boxed{42}``, ``**42**``, ``x = 42``), and reads the rest exactly,
in the digits of any script. What has a second number or a word of numbers in it is not a number: ``460 or 461``. The
table in docs/how-to/scorer.md shows the notations.
"""

import re
import sys
import unicodedata
from fractions import Fraction
from itertools import count
from typing import NamedTuple

from aworld_train.reward.text_normalization import fold

MAX_CHARS = 200
_MAX_DIGITS = 100
_LARGEST = Fraction(sys.float_info.max)

_CODES = {
    "USD": "$ US$ USD dollar dollars", "EUR": "€ EUR euro euros", "GBP": "£ GBP", "JPY": "円 JPY yen",
    "CNY": "元 圆 CNY RMB yuan", "JPY CNY": "¥", "INR": "₹ INR rupee rupees", "KRW": "₩ 원 KRW won",
    "CAD": "C$ CA$ CAD", "AUD": "A$ AU$ AUD", "HKD": "HK$ HKD", "SGD": "S$ SGD", "NZD": "NZ$ NZD", "TWD": "NT$ TWD",
    "BRL": "R$ BRL", "MXN": "MX$ MXN", "CHF": "CHF", "RUB": "₽ RUB", "TRY": "₺ TRY", "THB": "฿ THB", "ILS": "₪ ILS",
    "UAH": "₴ UAH", "PHP": "₱ PHP", "VND": "₫ VND", "NGN": "₦ NGN", "SEK": "SEK", "NOK": "NOK", "PLN": "PLN",
}  # fmt: skip
CURRENCIES = {name.casefold(): code for code, names in _CODES.items() for name in names.split()} | {
    "us dollars": "USD",
    "pounds sterling": "GBP",
}
"""The code of each currency, by its signs and names; ``¥`` is that of two."""
SCALES = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "quadrillion": 10**15,
}  # fmt: skip
NUMBER_WORDS = frozenset({
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty",
    "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "half", "halves", "thirds", "fourths", "fifths",
    "sixths", "sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths", "point", "plus", "minus",
    "squared", "cubed", "and", "or", "nor", "not", "to", "vs", "versus", "of", "over", "through", "until",
    "maybe", "between", *SCALES,
})  # fmt: skip
"""Words that make the number before them another one, or one of two; none of them is a unit."""

_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_PAIRS = (
    ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("*", "*"), ("__", "__"), ("`", "`"),
    ('"', '"'), ("'", "'"), ("«", "»"),
)  # fmt: skip
_COMMAND = r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf)\s*"
_WRAPPED = re.compile(
    r"(?:\\(?:boxed|fbox)\s*|" + _COMMAND + r"(?=[^0-9]*[0-9]))\{(?P<inside>.*)\}", re.DOTALL
)
_TEXT = re.compile(_COMMAND + r"\{([^{}]*)\}")
_UNIT_IN_TEX = re.compile(
    r"(?P<number>.*[0-9}])(?:\\[,;: ]|~|\s)*" + _COMMAND + r"\{\s*(?P<unit>[A-Za-z][A-Za-z ]*?)\s*\}",
    re.DOTALL,
)
_NAME = re.compile(r"(?:#{3,}|(?:[A-Za-z](?:_\{?[0-9A-Za-z]+\}?|\([A-Za-z]\))?\s*)?=(?!=))\s*")
_TEX_SPACE = re.compile(r"\\[,;: ]|(?<=\S)~")
_TEX_COMMA = re.compile(r",\s*\\!\s*")
_MARKS = str.maketrans({"٫": ".", "٬": ",", "٪": "%", "。": ".", "⁄": "/", "×": r"\times ", "·": r"\times "})
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_POWER = re.compile(r"10([⁻⁺]?[⁰¹²³⁴-⁹]+)\Z")

_NAMES = sorted(CURRENCIES, key=len, reverse=True)
_SIGN = "|".join(re.escape(name) for name in _NAMES if "$" in name or not name.isascii())
_WORD = "|".join(name for name in _NAMES if "$" not in name and name.isascii())
_BEFORE = re.compile(
    rf"([+-]?)\s*(?:\\?(?P<sign>%|{_SIGN})|(?P<word>{_WORD})(?![a-z]))?\s*([+-]?)\s*", re.IGNORECASE
)
_AFTER = re.compile(
    rf"\s*(?:\\?(?P<sign>%|{_SIGN})|(?<![A-Za-z\\])(?P<word>percent|per cent|pct\.?|{_WORD}))\Z",
    re.IGNORECASE,
)
_SCALE = re.compile(rf"\s+({'|'.join(SCALES)})\Z", re.IGNORECASE)
# Groups have three digits, or in India two and then three, with the same mark between all.
_SPACED = r"[0-9]{1,3}(?:'[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+"
_DECIMAL = re.compile(
    rf"(?P<whole>[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+|[0-9]{{1,2}}(?:,[0-9]{{2}})+,[0-9]{{3}}|{_SPACED}|[0-9]+|(?=\.[0-9]))"
    r"(?P<part>\.[0-9]*)?(?:[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_CONTINENTAL = re.compile(
    rf"(?P<whole>[0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,}}|(?:[0-9]{{1,3}}(?:\.[0-9]{{3}})+|{_SPACED}|0)(?=,))(?:,(?P<part>[0-9]+))?"
)
_DECIMAL_COMMA = re.compile(r"(?P<whole>[0-9]+),(?P<part>[0-9]+)")
_SCIENTIFIC = re.compile(
    r"(?:(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:\\times|\\cdot|\*|x)\s*)?10\s*(?:\^|\*\*)\s*"
    r"(?P<opening>[{(])?\s*(?P<exponent>[+-]?[0-9]{1,3})\s*(?(opening)[})])"
)
_DIGITS = r"(?:\{\s*([0-9]+)\s*\}|([0-9]))"
_FRACTION = re.compile(
    r"(?:(?P<whole>[0-9]+)(?P<joint>\s+and\s+|\s+|\s*(?=\\)))?"
    rf"(?:(?P<top>[0-9]+)\.?\s*/\s*(?P<bottom>[0-9]+)\.?|\\[dtc]?frac\s*{_DIGITS}\s*{_DIGITS})"
)
_REPEATING = re.compile(r"(?P<before>[0-9]*\.[0-9]*)\\(?:overline|bar|dot)\{?(?P<repeated>[0-9]+)\}?")


class Quantity(NamedTuple):
    """A number, and its unit: the code of a currency, ``%``, or what TeX sets as text.

    It is ``computed`` if it is a fraction, a power, or has a word that multiplies it; ``reduced`` if its fraction is in
    lowest terms and not a whole number; ``joined`` if its whole part and its fraction have an "and" between them;
    ``decimal`` if it has a decimal point, so that it may be rounded.
    """

    value: Fraction
    unit: str = ""
    computed: bool = False
    reduced: bool = True
    joined: bool = False
    decimal: bool = False

    @property
    def written(self) -> str:
        """The number in digits: with a point if it may be rounded, else as a fraction if it is not a whole number."""
        if not self.decimal or self.value.denominator == 1:
            return str(self.value) + (".0" if self.decimal else "")
        places = next(n for n in count(1) if (self.value * 10**n).denominator == 1)
        digits = str(abs(int(self.value * 10**places))).rjust(places + 1, "0")
        return f"{'-' if self.value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def same_unit(one: str, other: str) -> bool:
    """Whether two units may be the same; a missing one is the other."""
    return one == other or not one or not other or not set(one.split()).isdisjoint(other.split())


def read_number(text: str, *, plain: bool = False, decimal_comma: bool = False) -> Quantity | None:
    """The number that a text is; None for any other text, and for a number that no float can hold.

    ``plain`` reads only digits, separators and signs of currency or percent; ``decimal_comma`` reads ``4,2`` as 4.2.
    """
    if len(text) > MAX_CHARS or (plain and (text[:1].isalpha() or (text[-1:].isalpha() and text.isascii()))):
        return None
    text = text.strip().strip(_INVISIBLE)
    if not text.isascii():
        if any(map(text.__contains__, _INVISIBLE)):
            return None
        text = "".join(map(_plain_character, fold(text).translate(_MARKS)))
        text = _POWER.sub(lambda power: f"10^{power[1].translate(_RAISED)}", text)
    text = undressed(text.replace("{,}", ","), plain=plain)
    unit = ""
    if set_in_tex := _UNIT_IN_TEX.fullmatch(text):
        words = set_in_tex["unit"].casefold().split()
        if NUMBER_WORDS.isdisjoint(words) and not _AFTER.search(" ".join(words)):
            text, unit = set_in_tex["number"], " ".join(words)
    if "\\" in text or "~" in text:
        text = _TEXT.sub(r"\1", _TEX_COMMA.sub(",", text)).replace(r"\!", "")
        text = _TEX_SPACE.sub(" ", text).strip()
    before = _BEFORE.match(text)
    if before is None or (before[1] and before[4]):
        return None
    body = text[before.end() :]
    units = {_code(before), unit}
    if after := _AFTER.search(body):
        body = body[: after.start()]
        units.add(_code(after))
    units.discard("")
    if len(units) > 1 or (plain and (before["word"] or (after and after["word"]))):
        return None
    number = _unsigned(body, plain, decimal_comma)
    if number is None or abs(number.value) > _LARGEST:
        return None
    sign = -1 if "-" in (before[1], before[4]) else 1
    return number._replace(value=sign * number.value, unit=units.pop() if units else "")


def undressed(text: str, *, plain: bool = False) -> str:
    """A text without math delimiters, box, emphasis, quotes and final stops; and without ``x =`` unless plain."""
    before = None
    while text != before:
        before = text
        text = text.strip().rstrip(".,;:").removesuffix("\\").rstrip()
        for opening, closing in _PAIRS:
            inside = text[len(opening) : -len(closing)]
            if inside and text.startswith(opening) and text.endswith(closing) and opening not in inside:
                text = inside
        if (wrapped := _WRAPPED.fullmatch(text)) and _is_balanced(wrapped["inside"]):
            text = wrapped["inside"]
        if not plain:
            if text.startswith("[") and text.endswith("]") and text.count("[") == 1 and "," not in text:
                text = text[1:-1]
            if name := _NAME.match(text):
                text = text[name.end() :]
    return text


def _unsigned(body: str, plain: bool, decimal_comma: bool) -> Quantity | None:
    scale = 1
    while not plain and (word := _SCALE.search(body)):
        body, scale = body[: word.start()], scale * SCALES[word[1].casefold()]
    if len(body) > _MAX_DIGITS:
        return None
    if match := _DECIMAL.fullmatch(body):
        value = Fraction(
            f"{re.sub('[^0-9]', '', match['whole']) or 0}{match['part'] or ''}e{match['exponent'] or 0}"
        )
        decimal = bool(match["part"]) or value.denominator > 1
        return Quantity(value * scale, computed=scale > 1, decimal=decimal)
    if plain:
        return None
    if (match := _CONTINENTAL.fullmatch(body)) or (
        decimal_comma and (match := _DECIMAL_COMMA.fullmatch(body))
    ):
        value = Fraction(f"{re.sub('[^0-9]', '', match['whole'])}.{match['part'] or 0}")
        return Quantity(value * scale, computed=scale > 1, decimal=bool(match["part"]))
    if match := _SCIENTIFIC.fullmatch(body):
        value = Fraction(match["number"] or 1) * Fraction(f"1e{match['exponent']}")
        return Quantity(value * scale, computed=True, decimal="." in (match["number"] or ""))
    if match := _REPEATING.fullmatch(body):
        begin, repeated = match["before"], match["repeated"]
        step = Fraction(1, 10 ** len(begin.partition(".")[2]))
        value = Fraction(f"0{begin}0" if begin.endswith(".") else f"0{begin}")
        return Quantity(
            (value + step * Fraction(int(repeated), 10 ** len(repeated) - 1)) * scale, computed=True
        )
    if match := _FRACTION.fullmatch(body):
        top, bottom = (
            int(digits) for digits in (match[3] or match[5] or match[6], match[4] or match[7] or match[8])
        )
        if not bottom or ((joined := "and" in (match["joint"] or "")) and top >= bottom):
            return None
        value = Fraction(top, bottom)
        reduced = bottom > 1 and value.denominator == bottom
        return Quantity(
            (int(match["whole"] or 0) + value) * scale, computed=True, reduced=reduced, joined=joined
        )
    return None


def _code(match: re.Match[str]) -> str:
    name = (match["sign"] or match["word"] or "").casefold()
    return CURRENCIES.get(name, "%" if name else "")


def _plain_character(character: str) -> str:
    """A digit of any script as the ASCII digit, any space as a space, and ``½`` as `` 1/2``."""
    if character.isascii():
        return character
    if character.isspace():
        return " "
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if unicodedata.category(character) == "No" and "⁄" in (
        written := unicodedata.normalize("NFKC", character)
    ):
        return " " + written.replace("⁄", "/")
    return character


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0
