r"""Notations of sets, intervals, lists and residues in the one that math-verify reads: ``]0,1[`` becomes ``(0,1)``,
``[1,5;3]`` ``[1.5,3]``, ``\{x : x>3\}`` ``x>3``, "no solution" ``\emptyset``, ``[[1,2],[3,4]]`` a matrix, and ``\pm 2``
``\{2,-2\}``.
"""

import re

_COMMAND = r"\\(?:text|mathrm|textrm|textnormal|mbox|textbf)\s*"
_TEXT = re.compile(_COMMAND + r"\{([^{}]*)\}")
_NO_SOLUTION = re.compile(
    r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?)|(?:the )?empty set"
    r"|\\(?:varnothing|emptyset)|\\\{\s*\\\}|∅",
    re.IGNORECASE,
)
_ALL_REALS = re.compile(
    r"(?:the set of )?(?:all|any|every|the) real(?:s| numbers?| values?)?(?: (?:of )?\$?[a-z]\$?)?",
    re.IGNORECASE,
)
_REALS = re.compile(r"(?:\\mathbb\s*(?:\{\s*R\s*\}|R)|ℝ|\\R(?![A-Za-z]))(?!\s*[\^_])")
_INTERVAL = re.compile(
    r"(?P<left>(?:\\left\s*)?[\[\](])(?P<start>[^\[\](){}]*(?:[({][^\[\](){}]*[)}][^\[\](){}]*)*?)(?P<mark>[,;])"
    r"(?P<end>[^\[\](){},;]*(?:[({][^\[\](){}]*[)}][^\[\](){},;]*)*)(?P<right>(?:\\right\s*)?[\[\])])"
)
_BUILDER = re.compile(
    r"(?:\\left\s*)?\\\{\s*(?P<name>[A-Za-z])\s*(?:(?:\\in|∈)\s*(?:\\mathbb\s*\{?\s*R\s*\}?|ℝ|\\R)\s*)?"
    r"(?::|\||\\mid|\\vert|\\colon|\\middle\s*\|)\s*(?P<condition>.+?)\s*(?:\\right\s*)?\\\}"
)
_ROWS = re.compile(r"\[\s*(?:\[[^\[\]]*\]\s*,\s*)*\[[^\[\]]*\]\s*\]")
_ROW = re.compile(r"\[([^\[\]]*)\]")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|±|∓")
_MINUS_PLUS = (r"\mp", "∓")
_BRACED = re.compile(r"(?:\\left\s*)?\\\{(?P<inside>.*?)(?:\\right\s*)?\\\}")
_NUMBER = r"\(?\s*(?P<number>[0-9A-Fa-f]+)\s*\)?\s*"
_NAMES = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen",
)  # fmt: skip
_BASE = re.compile(
    _NUMBER
    + rf"(?:_\s*\(?\s*(?:base\s*)?|\(?\s*(?:in\s+)?base[\s-]+)(?P<base>[0-9]{{1,2}}|{'|'.join(_NAMES)})\s*\)?"
)
_RESIDUE = re.compile(
    r"(?:[A-Za-z]\s*(?:\\equiv|≡)\s*)?(?P<number>[+-]?[0-9]{1,30})\s*"
    r"(?:\\pmod\s*|\(?\s*\\?(?:b?mod)(?![A-Za-z])\s*)(?P<modulus>[1-9][0-9]{0,8})\s*\)?"
)
_ORDINAL = re.compile(r"(?<=[0-9])\s*(?:\^\s*)?\{?\s*(?:" + _COMMAND + r"\{?\s*)?(?:st|nd|rd|th)\s*\}{0,2}\Z")


def in_base(text: str) -> tuple[str, int] | None:
    match = _BASE.fullmatch(_bare(text))
    if match is None:
        return None
    base = int(match["base"]) if match["base"].isdecimal() else _NAMES.index(match["base"]) + 2
    # Unlike the variable E_1.
    return (match["number"], base) if all(int(digit, 16) < base for digit in match["number"]) else None


def residue(text: str) -> tuple[str, int] | None:
    match = _RESIDUE.fullmatch(_bare(text))
    return (match["number"], int(match["modulus"])) if match else None


def without_ordinal(text: str) -> str:
    """``14^{th}`` as 14."""
    return _ORDINAL.sub("", text)


def in_shape(text: str) -> str:
    words = _TEXT.sub(r"\1", text).replace("\\ ", " ").strip(" .")
    if _NO_SOLUTION.fullmatch(words):
        return r"\emptyset"
    if _ALL_REALS.fullmatch(words):
        return r"(-\infty,\infty)"
    text = re.sub(r"(?:\\left\s*)?(?:\\langle|⟨)", "(", re.sub(r"(?:\\right\s*)?(?:\\rangle|⟩)", ")", text))
    if builder := _BUILDER.fullmatch(text):
        text = builder["condition"]
    elif _ROWS.fullmatch(text):
        rows = r"\\".join(row.replace(",", "&") for row in _ROW.findall(text))
        return rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}"
    text = _REALS.sub(r"(-\\infty,\\infty)", text)
    if "[" in text or "]" in text or ";" in text:
        text = _INTERVAL.sub(_interval, text)
        if ";" in text and "," not in text:
            text = text.replace(";", ", ")
    return _with_both_signs(text) if _PLUS_MINUS.search(text) else text


def _interval(match: re.Match[str]) -> str:
    """An interval with ``[`` where it is closed and ``(`` where it is open; a pair between parentheses as it is."""
    start, end = match["start"], match["end"]
    if match["mark"] == ";":  # commas in it are decimal
        start, end = (re.sub(r"(?<=[0-9]),(?=[0-9])", ".", side) for side in (start, end))
    elif "," in start:
        return match[0]
    left = "[" if match["left"].endswith("[") else "("
    right = "]" if match["right"].endswith("]") else ")"
    return f"{left}{start},{end}{right}"


def _with_both_signs(text: str) -> str:
    inside = _BRACED.fullmatch(text.strip())
    elements: list[str] = []
    for element in split_outside_brackets(inside["inside"] if inside else text, ","):
        for signs in ("+-", "-+") if _PLUS_MINUS.search(element) else ("",):
            elements.append(_PLUS_MINUS.sub(lambda sign, signs=signs: signs[sign[0] in _MINUS_PLUS], element))  # type: ignore[misc]
    listed = ", ".join(element.strip() for element in elements)
    return listed if "=" in text else rf"\{{{listed}\}}"


def split_outside_brackets(text: str, separators: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character in separators and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _bare(text: str) -> str:
    return re.sub(r"\\[,;: ]|[{}]", " ", _TEXT.sub(r"\1", text)).strip()
