"""Normalising how people write mathematics: dollar signs and units are split off, Unicode signs replaced.

``5 million`` becomes 5000000, ``4.5 \\times 10^{33}`` becomes 4.5e33, ``10^{-5}`` becomes 1e-5, ``1\\,000`` and
``1 000`` become 1000.
"""

import re
import unicodedata
from dataclasses import dataclass

_MARKS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
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
"""A time of day, with or without its half."""
_BASE = re.compile(r"(?P<number>[0-9A-Fa-f]+)_\{?(?P<base>[0-9]{1,2})\}?")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15}
_SCIENTIFIC = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:\\times|\\cdot|×|·|\*|x)\s*)?10\s*"
    r"(?:(?:\^|\*\*)\s*(?P<opening>[{(])?\s*(?P<exponent>[+-]?[0-9]{1,3})\s*(?(opening)[})])|(?P<raised>[⁻⁺]?[⁰¹²³⁴-⁹]{1,3}))"
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
_SPACED = re.compile(r"([+-]?[0-9]{1,3}(?:[ \u00a0\u2009\u202f][0-9]{3})+)(\.[0-9]+)?")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree|\bdegrees?)\s*$")
_CURRENCY = re.compile(r"^([+-]?)\s*(?:\\?(?P<dollar>\$)|(?P<sign>[€£¥]))\s*(?=[0-9.+-])")
# Words that join values or name functions and constants; any other word of three or more letters is prose.
_FUNCTIONS = "arccos|arcsin|arctan|cosh|cos|cot|csc|exp|gcd|lcm|ln|log|max|min|sec|sinh|sin|sqrt|tanh|tan"
_MATH_WORDS = frozenset(_FUNCTIONS.split("|")) | {
    "and",
    "det",
    "inf",
    "infty",
    "lim",
    "mod",
    "or",
    "pi",
    "pmod",
    "theta",
}
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
    """An answer, with its unit and percent sign split off.

    Attributes:
        text: The mathematics to compare.
        unit: The unit after it or the currency's sign before it, with its power; empty if there is none.
        percent: Whether a percent sign followed it.
    """

    text: str
    unit: str
    percent: bool


def quantity(text: str) -> MathAnswer:
    """Split an answer from its dollar signs, box, currency, unit and percent sign."""
    text = _without_delimiters(text).translate(_FULL_WIDTH).replace("−", "-")
    text = _THOUSANDS.sub(lambda match: re.sub(r"[^0-9]", "", match[0]), text)
    text = time = _MODULE.sub("", text)
    if "\\" in text:
        text = _TEXT_OF_NUMBER.sub(r"\1", _SPACES.sub(" ", text.replace(r"\!", ""))).strip()
        time = _TEXT.sub(r"\1", text).strip()
    if TIME.fullmatch(time):
        return MathAnswer(time, "", False)
    currency = _CURRENCY.match(text)
    sign = (currency["dollar"] or currency["sign"]) if currency else ""
    text = _CURRENCY.sub(r"\1", text)
    if percent := _PERCENT.search(text):
        return MathAnswer(_number(_without_delimiters(text[: percent.start()])), "", True)
    if degrees := _DEGREES.search(text):
        return MathAnswer(text[: degrees.start()].strip(), "degree", False)
    if (based := _BASE.fullmatch(text)) and _has_digits_of(based["number"], int(based["base"])):
        return MathAnswer(based["number"], f"base {based['base']}", False)
    match = _UNIT.fullmatch(text)
    words = (match["marked"] or match["words"] or "").split() if match else []
    if match is None or not words or not _MATH_WORDS.isdisjoint(word.casefold() for word in words):
        return MathAnswer(_number(text), sign, False)
    if match["pi"] and not match["marked"] and max(map(len, words)) < 3:  # the product \pi rh
        return MathAnswer(text, sign, False)
    number = match["number"].strip()
    while words and words[0].casefold() in _SCALES:
        number = _scaled(number, _SCALES[words.pop(0).casefold()])
    unit = " ".join(words)
    if unit and match["power"]:
        unit = f"{unit}^{match['power']}"
    return MathAnswer(_number(number), unit or sign, False)


def without_name(answer: MathAnswer, other: MathAnswer) -> MathAnswer:
    """``x = 5`` as 5, where the other one is no equation."""
    name = _NAME.match(answer.text)
    if name is None or answer.text.count("=") > 1 or "=" in other.text:
        return answer
    value = quantity(answer.text[name.end() :])
    return MathAnswer(value.text, answer.unit or value.unit, answer.percent or value.percent)


def _has_digits_of(number: str, base: int) -> bool:
    """Whether a number can be one of a base, unlike the variable ``E_1``."""
    return all(int(digit, 16) < base for digit in number)


def _number(text: str) -> str:
    """A number in one of its long forms in a short one; any other text as it is."""
    if scientific := _SCIENTIFIC.fullmatch(text):
        exponent = scientific["exponent"] or scientific["raised"].translate(_RAISED)
        return f"{scientific['sign']}{scientific['number'] or 1}e{exponent}"
    if spaced := _SPACED.fullmatch(text):
        return re.sub(r"\s", "", spaced[1]) + (spaced[2] or "")
    return text


def _scaled(number: str, exponent: int) -> str:
    plain = number.replace(",", "")
    if re.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]+)?", plain):
        return f"{plain}e{exponent}"
    return rf"({number}) \cdot 10^{{{exponent}}}"


def as_latex(text: str) -> str:
    """Typed mathematics as LaTeX."""
    text = "".join(_SIGNS.get(sign, sign) for sign in text)
    text = re.sub(r"\\(?:mathrm|text)\s*\{\s*([A-Za-z])\s*\}", r"\1", text)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|([0-9A-Za-z.]+))", lambda m: rf"\sqrt{{{m[1] or m[2]}}}", text)
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: f"^{{{m[0].translate(_RAISED)}}}", text)
    text = re.sub(r"\*\*|\^", "^", text)
    text = re.sub(r"\^\s*\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^\s*(-?[0-9]{2,}|-[0-9a-zA-Z])", r"^{\1}", text)
    text = text.replace("*", r" \cdot ").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = re.sub(rf"(?<![\\A-Za-z])(pi|infty|theta|{_FUNCTIONS})(?![A-Za-z])", r"\\\1 ", text)
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\A-Za-z])[eE](?=_)", r"\\mathcal{E}", text)  # a name, not Euler's number
    text = _FRACTION.sub(lambda m: rf"\frac{{{m[1].strip('{}')}}}{{{m[2].strip('{}')}}}", text)
    return re.sub(r"(?<![0-9.])([0-9]+) +([0-9]+) ?/ ?([0-9]+)", r"\1\\frac{\2}{\3}", text)


def is_prose(text: str) -> bool:
    """Whether it has words, whose letters SymPy would read as a product of variables, in any order."""
    if text.strip().casefold() in _SHORT_WORDS:
        return True
    without_names = _INDEX.sub("", _ARGUMENT.sub(" ", text))
    return any(word.casefold() not in _MATH_WORDS for word in _WORD.findall(without_names))


def same_words(one: str, other: str) -> bool:
    """Whether both are the same text except for case, spacing, layout and text commands, and have a letter or digit."""
    return _plain(one) == _plain(other) and any(map(str.isalnum, _plain(one)))


def _plain(text: str) -> str:
    if "\\" in text:
        text = _TEXT.sub(r"\1", _LAYOUT.sub("", text))
    return " ".join(unicodedata.normalize("NFC", text.replace("=", " = ")).casefold().split())


def _without_delimiters(text: str) -> str:
    """The text without math delimiters, box and final full stop."""
    before = None
    while text != before:
        before = text
        text = text.strip().removesuffix(".").removesuffix(r"\ ").strip()
        for opening, closing in _MARKS:
            inner = text[len(opening) : -len(closing)]
            if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening + closing):
                if opening == "$" and "$" in inner:
                    continue
                text = inner
        if box := _BOX.fullmatch(text):
            text = box[1]
    return text
