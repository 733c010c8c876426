"""The kind of an answer, guessed from its text: it shows what a scorer will have to compare."""

import json
import re

KINDS = ("number", "yes-no", "list", "latex", "code", "short text", "long text")
SHORT_WORDS = 10

_NUMBER = re.compile(
    r"[-+−]?\s*[$€£¥]?\s*[-+−]?(\d[\d,]*(\.\d+)?|\.\d+)([eE][-+]?\d+)?(\s*/\s*\d+)?\s*[%€$£¥°]?"
)
_LATEX = re.compile(r"\\[a-zA-Z]+|\$[^$]+\$|\\[\[(]")
_CODE = re.compile(
    r"```|^\s*(def|class|import|from|assert|return|for|while|if|#include|function|SELECT)\b.*[:;()]", re.M
)
_WORDS_OF_AN_ITEM = 5


def answer_kind(answer: str, scorer: str = "") -> str:
    """One of `KINDS`; an answer that the scorer ``code_tests`` compares is always code.

    A list has items with commas or semicolons between them, or is a JSON list; `1,000` is a number.
    """
    text = answer.strip()
    if scorer == "code_tests" or _CODE.search(text):
        return "code"
    if _NUMBER.fullmatch(text):
        return "number"
    if text.casefold().rstrip(".") in ("yes", "no", "true", "false"):
        return "yes-no"
    if _LATEX.search(text):
        return "latex"
    if _is_list(text):
        return "list"
    return "short text" if len(text.split()) <= SHORT_WORDS else "long text"


def _is_list(text: str) -> bool:
    if text.startswith("["):
        try:
            return isinstance(json.loads(text), list)
        except ValueError:
            return False
    items = re.split(r"[,;]\s*", text)
    return len(items) > 1 and all(0 < len(item.split()) <= _WORDS_OF_AN_ITEM for item in items)
