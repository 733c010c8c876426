"""Normalising how people write mathematics: numbers are read, units split off, and Unicode signs replaced."""

import re
import unicodedata
from dataclasses import dataclass, replace

from aworld_train.reward.math_shapes import in_base, in_shape, residue, without_ordinal
from aworld_train.reward.numbers import CURRENCIES, NUMBER_WORDS, SCALES, Quantity, read_number, undressed

_PERCENT = re.compile(r"\s*(?:\\?%|percent|per cent|pct\.?)$", re.IGNORECASE)
_UNIT = re.compile(
    r"(?P<number>.*(?:[0-9})]|(?P<pi>\\pi|π)))"
    r"(?:\s*\\(?:text|mathrm|textrm|textnormal|textbf|mbox)\s*\{\s*(?P<marked>[^{}]*)\}"
    r"|\s+(?P<words>[A-Za-z][A-Za-z./ ]*[A-Za-z]|[mglsh]))"
    r"(?:\s*\^\s*\{?(?P<power>-?[1-9])\}?)?",
    re.DOTALL,
)
TIME = re.compile(
    r"(?P<hours>[0-9]{1,2}):(?P<minutes>[0-9]{2})(?P<seconds>:[0-9]{2})?\s*(?P<half>[ap])?\.?\s*(?:m\.?)?",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(
    r"(?<![0-9.])[0-9]{1,3}(?:(?:,\s*\\!|\{,\}|\\,|\\ )\s*[0-9]{3})+(?![0-9])"
    r"|(?:(?<=frac\{)|(?<=\}\{))[1-9][0-9]{0,2}(?:,[0-9]{3})+(?=\})"
)
_SPACES = re.compile(r"(?<!\\)\\[,;: ]|~")
_MODULE = re.compile(r"(?<![A-Za-z0-9_.])(?:np|numpy|math|sympy)\.(?=[a-z])")  # of a function in Python
_NAME = re.compile(r"[A-Za-z](?:_\{?[0-9A-Za-z]+\}?)?\s*=(?!=)\s*")
_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|omega"
_ARGUMENT_OF_FRACTION = rf"(\{{[^{{}}]*\}}|\\(?:{_GREEK})(?![A-Za-z])|[0-9A-Za-z])"
_FRACTION = re.compile(rf"\\[dt]?frac\s*{_ARGUMENT_OF_FRACTION}\s*{_ARGUMENT_OF_FRACTION}")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree|\bdegrees?)\s*$")
_CURRENCY = re.compile(r"^([+-]?)\s*\\?(?P<sign>[$€£¥])\s*(?=[0-9.+\\-])")
_EXPONENT = re.compile(
    r"(?<![A-Za-z0-9.\\_^{])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE]([+-]?[0-9]+)(?![0-9A-Za-z])"
)
_IS = re.compile(r"\A(?:=|#{3,})\s*(?=[^=\s])")
# Words that join values or name functions and constants; any other word of three or more letters is prose.
_FUNCTIONS = "arccos|arcsin|arctan|cosh|cos|cot|csc|exp|gcd|lcm|ln|log|max|min|sec|sinh|sin|sqrt|tanh|tan"
_MATH_WORDS = frozenset(
    (*_FUNCTIONS.split("|"), *["and", "det", "inf", "infty", "lim", "mod", "or", "pi", "pmod", "theta"])
)
_INDEX = re.compile(r"_\s*\{(?:[^{}]|\{[^{}]*\})*\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_ARGUMENT = re.compile(r"\\(?:begin|end|mathbb|mathcal|operatorname)\s*\{[^{}]*\}")
_TEXT_COMMAND = r"\\(?:text|mathrm|textrm|textnormal|mbox|textbf|mathbf)\s*"
_TEXT = re.compile(_TEXT_COMMAND + r"\{([^{}]*)\}")
_TEXT_OF_NUMBER = re.compile(_TEXT_COMMAND + r"\{([^{}A-Za-z\\]*[0-9][^{}A-Za-z\\]*)\}")
_LAYOUT = re.compile(r"\\(?:left|right)(?![A-Za-z])|(?<=\\)[dt](?=frac)")
# Words of two letters, which would be products of variables.
_SHORT_WORDS = frozenset({
    "am", "an", "as", "at", "be", "by", "do", "go", "he", "hi", "if", "in", "is", "it", "me", "my", "no", "of", "oh",
    "ok", "on", "or", "so", "to", "up", "us", "we",
})  # fmt: skip
_SIGNS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "∞": r"\infty ", "π": r"\pi ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "±": r"\pm ", "θ": r"\theta ", "ℝ": r"\mathbb{R}",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")


@dataclass(frozen=True)
class MathAnswer:
    """An answer, with its unit (or the currency's code, with its power) and percent sign split off.

    ``modulus`` is that of a residue such as ``6 \\pmod 7``, else 0.
    """

    text: str
    unit: str = ""
    percent: bool = False
    number: Quantity | None = None
    modulus: int = 0


def quantity(text: str) -> MathAnswer:
    text = _IS.sub("", undressed(text, plain=True))
    if "=" not in text and (number := read_number(text)) and number.unit in _UNITS:
        return _of_number(number, text)
    text = in_shape(undressed(text, plain=True).translate(_FULL_WIDTH).replace("−", "-"))
    text = _THOUSANDS.sub(lambda match: re.sub(r"[^0-9]", "", match[0]), text)
    text = time = _MODULE.sub("", text)
    if found := in_base(text):
        digits, base = found
        if not digits.isdecimal():  # 1E5 is not a power of ten here
            return MathAnswer(rf"\text{{{digits}}}", f"base {base}")
        return MathAnswer(digits, f"base {base}", number=read_number(digits))
    if found := residue(text):
        return MathAnswer(found[0], f"mod {found[1]}", number=read_number(found[0]), modulus=found[1])
    if "\\" in text:
        text = without_ordinal(text)
        text = _TEXT_OF_NUMBER.sub(r"\1", _SPACES.sub(" ", text.replace(r"\!", ""))).strip()
        time = _TEXT.sub(r"\1", text).strip()
    text = without_ordinal(text)
    if TIME.fullmatch(time):
        return MathAnswer(time)
    currency = _CURRENCY.match(text)
    sign = CURRENCIES[currency["sign"]] if currency else ""
    text = _CURRENCY.sub(r"\1", text)
    if (percent := _PERCENT.search(text)) and "%" not in text[: percent.start()]:
        return _plain(undressed(text[: percent.start()], plain=True), percent=True)
    if degrees := _DEGREES.search(text):
        return _plain(text[: degrees.start()].strip(), "degree")
    match = _UNIT.fullmatch(text)
    words = (match["marked"] or match["words"] or "").split() if match else []
    if match is None or not words or not _MATH_WORDS.isdisjoint(word.casefold() for word in words):
        return _plain(text, sign)
    if match["pi"] and not match["marked"] and max(map(len, words)) < 3:  # the product \pi rh
        return MathAnswer(text, sign)
    number_text, scale = match["number"].strip(), 1
    while words and words[0].casefold() in SCALES:
        scale *= SCALES[words.pop(0).casefold()]
    if not NUMBER_WORDS.isdisjoint(word.casefold() for word in words):
        return MathAnswer(text, sign)
    unit = " ".join(words)
    if unit and match["power"]:
        unit = f"{unit}^{match['power']}"
    return _plain(number_text, unit or sign, scale=scale)


_UNITS = frozenset(("", "%", *CURRENCIES.values()))


def _of_number(number: Quantity, text: str) -> MathAnswer:
    """A number; its text is kept where it might be a list as well: ``1 and 3/4``."""
    percent = number.unit == "%"
    written = text if number.joined else number.written
    return MathAnswer(written, "" if percent else number.unit, percent, number)


def _plain(text: str, unit: str = "", *, percent: bool = False, scale: int = 1) -> MathAnswer:
    number = None if "=" in text else read_number(text)
    if number is not None and number.unit == "":
        number = number._replace(value=number.value * scale)
        return MathAnswer(number.written, unit, percent, number)
    return MathAnswer(text if scale == 1 else rf"({text}) \cdot {scale}", unit, percent)


def without_name(answer: MathAnswer, other: MathAnswer) -> MathAnswer:
    """``x = 5`` as 5, where the other one is not an equation."""
    name = _NAME.match(answer.text)
    if name is None or answer.text.count("=") > 1 or "=" in other.text:
        return answer
    value = quantity(answer.text[name.end() :])
    return replace(value, unit=answer.unit or value.unit, percent=answer.percent or value.percent)


def as_latex(text: str) -> str:
    text = "".join(_SIGNS.get(sign, sign) for sign in text)
    text = re.sub(r"\\(?:mathrm|text)\s*\{\s*([A-Za-z])\s*\}", r"\1", text)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|([0-9A-Za-z.]+))", lambda m: rf"\sqrt{{{m[1] or m[2]}}}", text)
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: f"^{{{m[0].translate(_RAISED)}}}", text)
    text = re.sub(r"\*\*|\^", "^", text)
    text = _EXPONENT.sub(r"\1 \\cdot 10^{\2}", text)
    text = re.sub(r"\^\s*\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^\s*(-?[0-9]{2,}|-[0-9a-zA-Z])", r"^{\1}", text)
    text = re.sub(r"(?<![0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*\\?%", r"\\frac{\1}{100}", text)
    text = text.replace("*", r" \cdot ").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = re.sub(rf"(?<![\\A-Za-z])(pi|infty|theta|{_FUNCTIONS})(?![A-Za-z])", r"\\\1 ", text)
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\A-Za-z])[eE](?=_)", r"\\mathcal{E}", text)  # a name, not Euler's number
    text = _FRACTION.sub(lambda m: rf"\frac{{{m[1].strip('{}')}}}{{{m[2].strip('{}')}}}", text)
    return re.sub(r"(?<![0-9.])([0-9]+) +([0-9]+) ?/ ?([0-9]+)", r"\1\\frac{\2}{\3}", text)


def is_prose(text: str) -> bool:
    if text.strip().casefold() in _SHORT_WORDS:
        return True
    without_names = _INDEX.sub("", _ARGUMENT.sub(" ", text))
    return any(word.casefold() not in _MATH_WORDS for word in _WORD.findall(without_names))


def same_words(one: str, other: str) -> bool:
    """Whether both are the same text except for case, spacing, layout and text commands, and have a letter or digit."""
    return _letters(one) == _letters(other) and any(map(str.isalnum, _letters(one)))


def _letters(text: str) -> str:
    if "\\" in text:
        text = _TEXT.sub(r"\1", _LAYOUT.sub("", text))
    return " ".join(unicodedata.normalize("NFC", text.replace("=", " = ")).casefold().split())
